// Package pyfunc makes a function look like a model that MLflow serves. It has the paths
// of MLflow's scoring server. Clients of mlflow-extensions send an envelope to them, to
// talk to a model server as if they were connected to it.
//
//	POST /invocations   inputs, instances, dataframe_split, dataframe_records, text/csv,
//	                    or a chat, a completion, a response or embeddings as they are
//	GET  /ping /health  200 and an empty line when requests are taken
//	GET  /version       the version, as bare text
//
// It starts no process, opens no connection and keeps no request. It sends requests
// to [Config.Next], the function's own handler of client paths, in
// process. So it can reach the same paths as a client, and nothing else.
//
// The life of a call of /invocations:
//
//  1. Its Content-Type is looked at (415), its body is read (413) and taken
//     apart (400). The answers are those of MLflow's scoring server, word for word
//     where a program may look at them.
//  2. The body has messages, prompt or input: the whole of it is sent to the path
//     for it (see pathFor), with the model's name added where it has none.
//     The answer is passed on as it comes. With "stream": true it is a stream of
//     events in the shape of MLflow's AgentServer: data lines only, a failure as
//     {"error": "text"}, and [DONE] as the last event always.
//  3. Else it is a table whose first column is strings: such is the signature of the models
//     that mlflow-extensions logs. All are read before any is sent: JSON that is
//     no envelope fails the call (400), as with the stock server. What is no JSON is a prompt,
//     of a column "prompt" wherever it stands: its prediction is the text of a completion with
//     the call's params, and one that fails fails the call.
//  4. They are sent at once, [Config.Parallel] of them at a time, and answered in
//     order. A refusal by the runtime's gate because siblings of the same call have
//     taken all places is no answer: those strings are sent again after the siblings.
//  5. The answer is 200 whatever the runtime said: its status, a 429 or 503 with
//     Retry-After included, is in the envelope, where the clients' own logic of
//     retries looks for it. Where no string was given to the runtime, the header
//     control.HeaderRefused says so to the proxy in front of the function.
//
// Two kinds of string are not envelopes: HEALTH_CHECK, and COMPUTE_DIAGNOSTICS
// with one of an allow-list of keys (see diagnostics.go); both never reach the
// runtime.
//
// It refuses to say more of the machine than is asked for: no error has a list of
// processes, an environment or a command line in it.
//
// Packages: envelope (the wire format), client (the other side, for Go programs).
package pyfunc
