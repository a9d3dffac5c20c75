// Package proxy is an instance's data path. It passes clients' requests to the runtime and the answers back. It passes only client paths,
// which package api lists: the runtime's administrative paths are out of reach.
//
// The life of one request:
//
//  1. Its path is looked up: unknown ones are answered 404 unknown_path.
//  2. It takes a slot at the [Gate], or is refused: 503 with control.HeaderRefused, which promises that the runtime never sees it.
//  3. Its whole body is read, up to a limit (golang/go#40747: an upstream that answers early must not meet a body that is still on its
//     way), and the [Dialect] converts it.
//  4. It is sent. If no connection can be made, it is refused as by the gate. If the runtime fails before the first byte of its answer,
//     it is 502 runtime_failed, and the request may have had an effect.
//  5. The answer is passed on: a stream event by event, each as soon as it is whole. A short answer of known type is read to its end
//     first, so that a broken one becomes a 502. A failure is read whole and rewritten.
//  6. An answer that breaks off never looks complete: a stream gets an error event of its own style (code stream_cut), anything else an
//     aborted connection. If the activator asked for the stream's state (control.HeaderState) and the runtime or its transport reports
//     it, the connection is aborted and the stream continues elsewhere.
//  7. The client leaves: the request to the runtime is cancelled, which ends its generation. A client that reads nothing of its answer
//     for a minute counts as gone.
//
// A [Proxy] is safe for many goroutines and starts none of its own.
package proxy
