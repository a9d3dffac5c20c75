// Package relay is the common part of Rouse's proxies: the activator in front of instances, an instance in front of
// its runtime, a worker in front of the leader.
//
// It makes the outbound request, reads the answer, and forwards whole events. Its callers decide where a request
// goes, whether it is retried, and what a client is told.
//
// The life of one exchange:
//
//  1. The body was read whole (package inbound). [Request] makes the outbound request, without the headers of the
//     client's connection. [Unreachable] recognizes errors after which no server has seen the request.
//  2. [Source] reads the answer's body: its first bytes, before the client sees any, and then the rest. It has a
//     small pooled buffer; growth is charged to [Memory] and bounded.
//  3. [CopyHeader] copies the answer's header.
//  4. A stream consists of server-sent events (WHATWG HTML, 9.2) or of lines of JSON, as in Ollama's API.
//     [Events.Next] returns whole events as soon as they are complete; a [Splitter] finds their ends. An event that
//     is too large to buffer is returned in parts.
//  5. The stream ends. A [Judge] decides whether it is complete, as client libraries take any end of a connection for
//     success. The last events of a complete stream come with [io.EOF]. Those of a cut stream come with [ErrCut]: an
//     unfinished line is dropped and an open event is closed, so that the caller's own event may follow
//     ([api.Stream.Error] with [Events.Number]).
//  6. [Usage] counts the tokens that pass, for metrics and for the limits of keys.
//  7. [WriteDeadline] ends writes to a client that does not read.
//
// Nothing here is safe for concurrent use; each exchange has its own objects.
package relay
