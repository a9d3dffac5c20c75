// Package handler runs a user's program for pre- and post-processing between the
// clients and the runtime.
//
//	client ─► function ─► the program ($PORT) ─► our inner door ($ROUSE_RUNTIME_URL) ─► runtime
//
// The program is any HTTP server: it gets each request of a client as the client
// sent it and answers it, mostly by calling the runtime. It finds in its environment
//
//   - PORT: where it must listen, at 127.0.0.1;
//   - ROUSE_RUNTIME_URL: where the runtime answers, without a path;
//   - OPENAI_BASE_URL and OPENAI_API_KEY: the same for the official clients, which
//     need no further configuration;
//   - ROUSE_MODEL_NAME: the model's name.
//
// The inner door does not move when the runtime is started again, passes the
// client paths only, and asks for the key, which is new for each start of the
// function: it is for the program alone.
//
// The life of the program:
//
//  1. [Handler.Run] starts it; it counts as ready once its port takes a connection.
//  2. Requests are given to it from then on, see [Handler.Base].
//  3. It ends, or never listens: requests are refused (503 with
//     control.HeaderRefused, so that they are held and not lost), and it is started
//     again after a pause that doubles from 100 ms to 10 s.
//  4. Run's context ends: it is stopped, with all that it started.
//
// It sleeps with nobody: it stays while the runtime sleeps. A [Handler] is safe
// for many goroutines.
package handler
