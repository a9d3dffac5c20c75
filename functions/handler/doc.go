// Package handler runs a user's program for pre- and post-processing between the
// clients and the runtime.
//
//	client ─► function ─► the program ($PORT) ─► our inner door ($ROUSE_RUNTIME_URL) ─► runtime
//
// The program is any HTTP server. It gets each request of a client unchanged and
// answers it, mostly by calling the runtime. Its environment has
//
//   - PORT: where it must listen, at 127.0.0.1;
//   - ROUSE_RUNTIME_URL: where the runtime answers, without a path;
//   - OPENAI_BASE_URL and OPENAI_API_KEY: the same for the official clients, which
//     need no further configuration;
//   - ROUSE_MODEL_NAME: the model's name.
//
// The inner door keeps its address when the runtime restarts, passes only the client
// paths, and requires the key, which is new for each start of the function: it is for
// the program alone.
//
// The life of the program:
//
//  1. [Handler.Run] starts it; it is ready once its port accepts a connection.
//  2. From then on it gets requests, see [Handler.Base].
//  3. If it ends, or never listens, requests are refused (503 with
//     control.HeaderRefused, so that they are held and not lost). It is started
//     again after a pause that doubles from 100 ms to 10 s.
//  4. When Run's context ends it is stopped, with all that it started.
//
// It keeps running while the runtime sleeps. A [Handler] is safe for many goroutines.
package handler
