// Package pyfunc makes a function look like a model that MLflow serves. It has the paths
// of MLflow's scoring server. Clients of mlflow-extensions send an envelope to them, to
// talk to a model server as if they were connected to it.
//
//	POST /invocations   inputs, instances, dataframe_split, dataframe_records, text/csv,
//	                    or a chat, a completion, a response or embeddings, unchanged
//	GET  /ping /health  200 and an empty line when requests are accepted
//	GET  /version       the version, as bare text
//
// The [Handler] starts no process, opens no connection and keeps no request. It sends requests to [Config.Next], the function's
// own handler of client paths, in process. So it can reach the same paths as a client, and nothing else.
//
// The life of a call of /invocations:
//
//  1. Its Content-Type is checked (415), its body is read (413) and
//     parsed (400). The answers are those of MLflow's scoring server, word for word
//     if a program may depend on them.
//  2. If the body has messages, prompt or input, all of it is sent to the path
//     for it (see pathFor), and the model's name is added if it has none.
//     The answer is passed on as it comes. With "stream": true it is a stream of
//     events in the shape of MLflow's AgentServer: data lines only, a failure as
//     {"error": "text"}, and always [DONE] as the last event.
//  3. Otherwise it is a table whose first column is strings, which is the signature of the models
//     that mlflow-extensions logs. All strings are parsed before any is sent. JSON that is not
//     an envelope fails the call (400), as with the stock server. Other text is a prompt;
//     the column "prompt" may be at any place. The prediction of a prompt is the text of a completion with
//     the call's params; if it fails, the call fails.
//  4. The strings are sent at once, [Config.Parallel] of them at a time, and answered in
//     order. If the runtime's gate refuses a string because siblings of the same call have
//     all slots, it is sent again after the siblings.
//  5. The answer is 200 for any answer of the runtime. The runtime's status is in the envelope,
//     including a 429 or 503 with Retry-After, because the clients' retries look for it there.
//     If no string reached the runtime, the header
//     control.HeaderRefused tells the proxy in front of the function.
//
// Two kinds of string are not envelopes and never reach the runtime: HEALTH_CHECK, and
// COMPUTE_DIAGNOSTICS with one of an allow-list of keys (see diagnostics.go).
//
// It does not disclose more of the machine than was asked for: no error contains a list of
// processes, an environment or a command line.
//
// [Transport] is the other side, for Go programs.
package pyfunc
