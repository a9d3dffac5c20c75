// Package pyfunc makes a function look like a model that MLflow serves: it has the paths of MLflow's scoring server. Clients of
// mlflow-extensions send an envelope to them, to talk to a model server as if they were connected to it.
//
//	POST /invocations   inputs, instances, dataframe_split, dataframe_records, text/csv,
//	                    or a chat, a completion, a response or embeddings, unchanged
//	GET  /ping /health  200 and an empty line when requests are accepted
//	GET  /version       the version, as bare text
//
// The life of a call of /invocations:
//
//  1. Its Content-Type is checked (415), its body is read (413) and parsed (400). The answers are those of MLflow's scoring server.
//  2. A body with messages, prompt or input is sent to the path for it, with the model's name if it has none. With "stream": true the
//     answer is a stream in the shape of MLflow's AgentServer.
//  3. Otherwise it is a table whose first column, or the one called prompt, is strings: envelopes, or prompts for a completion with the
//     call's params. All strings are parsed before any is sent.
//  4. The strings are sent at once, [Config.Parallel] of them at a time, and answered in order. A string that is refused because siblings
//     have all slots is sent again after them.
//  5. The answer is 200 for any answer of the runtime, whose status is in the envelope: the clients' retries look for it there. If no
//     string reached the runtime, control.HeaderRefused says so.
//
// HEALTH_CHECK and COMPUTE_DIAGNOSTICS are answered here (diagnostics.go). No error contains a list of processes, an environment or a
// command line.
//
// [Transport] is the other side, for Go programs.
package pyfunc
