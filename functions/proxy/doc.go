// Package proxy is an instance's data path: it gives clients' requests to the
// runtime and the runtime's answers to the clients, bytes untouched. It passes
// only the paths of [Route]; the runtime's administrative paths are out of reach.
//
// The life of one request:
//
//  1. Its path is looked up: unknown ones are answered 404 unknown_path.
//  2. It takes a place at the [Gate], or is refused: 503 with
//     control.HeaderRefused, which promises that the runtime never sees it.
//  3. Its whole body is read, at most MaxBody (golang/go#40747: an upstream that
//     answers early must not meet a body that is still on its way).
//  4. It is sent. A runtime that can't be reached refuses it as the gate does; one
//     that fails before the first byte of its answer is 502 runtime_failed, and
//     the request may have had an effect.
//  5. The answer is passed on. A stream of events is passed on line by line, as
//     soon as a line is there; a short answer of known type is read to its end
//     first, so that a broken one is a 502 and not half an answer.
//  6. An answer that breaks off is never a clean one: a stream of events gets an
//     error event (code stream_cut) and no [DONE], anything else an aborted connection.
//  7. The client leaves: the request to the runtime is cancelled, which ends its
//     generation. Its place is given back when the runtime's answer is closed.
//
// A stream of a generating path is whole if it had [DONE], an error event of
// the runtime's own, the last event of its protocol (response.completed, .failed
// or .incomplete; message_stop), or a finish_reason and a proper end.
//
// A [Proxy] is safe for many goroutines and starts none of its own.
package proxy
