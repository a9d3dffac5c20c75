// Package proxy is an instance's data path: it gives clients' requests to the
// runtime and the runtime's answers to the clients, bytes untouched but for what
// the [Dialect] changes. It passes only client paths, which package api lists; the runtime's
// administrative paths are out of reach.
//
// The life of one request:
//
//  1. Its path is looked up: unknown ones are answered 404 unknown_path.
//  2. It takes a place at the [Gate], or is refused: 503 with
//     control.HeaderRefused, which promises that the runtime never sees it.
//  3. Its whole body is read, at most so much (golang/go#40747: an upstream that
//     answers early must not meet a body that is still on its way). One that takes longer
//     than the server's ReadTimeout is 408, a compressed one 415, JSON that is not
//     UTF-8 400. The dialect changes the rest.
//  4. It is sent. A runtime that can't be reached refuses it as the gate does; one
//     that fails before the first byte of its answer is 502 runtime_failed, and
//     the request may have had an effect.
//  5. The answer is passed on. A stream is passed on event by event, each as soon
//     as it is whole; a short answer of known type is read to its end first, so
//     that a broken one is a 502 and not half an answer; a failure is read whole
//     and put into the words that clients know.
//     An answer that was asked for as a stream though the client wants none is put together ([Streamer]).
//  6. An answer that breaks off is never a clean one: a stream gets an error event
//     of its own style (code stream_cut), anything else an aborted connection, or a
//     reset stream of HTTP/2. What a runtime says of its own failures is put into those words there too. What makes a stream whole is package relay's to say.
//     Where the activator has asked for the stream's state (control.HeaderState), and our own runtime or a transport like that of package resume tells it, the
//     connection is aborted, and the stream goes on elsewhere. Where a transport says why it does not, the error event says so.
//  7. The client leaves: the request to the runtime is cancelled, which ends its
//     generation. Its place is given back when the runtime's answer is closed. One
//     that takes nothing of its answer for a minute has left.
//
// What passes is counted on its way: [Outcome] says how one request went,
// [Proxy.Load] what all of them amount to now.
//
// Paths of Ollama's own API get errors in its own shape, {"error":"text"}.
//
// A [Proxy] is safe for many goroutines and starts none of its own.
package proxy
