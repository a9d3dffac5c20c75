// Package relay has the mechanism that every proxy of Rouse shares: the activator in front of instances, an
// instance in front of its runtime, a worker in front of the leader.
//
// It makes the outbound request, reads the answer, and passes whole events on. It decides nothing:
// where a request goes, whether it is retried, and what a client is told are for its callers to decide.
//
// The life of one exchange:
//
//  1. The body was read whole (package inbound). [Request] makes the request that goes on, without the
//     headers that belong to the client's connection. [Unreachable] tells an error that says that nobody has seen it.
//  2. [Source] reads the answer's body: its first bytes, before the client sees any, and then what comes.
//     It has a small pooled buffer; what it takes beyond that is charged to [Memory] and has a bound.
//  3. [CopyHeader] takes the answer's header over.
//  4. A stream is server-sent events (WHATWG HTML, 9.2) or lines of JSON, as in Ollama's own API. [Events.Next] returns
//     whole events, as soon as they are there; a [Splitter] finds where they end. An event that is larger than may be
//     kept back comes in parts.
//  5. The stream ends. A [Judge] has watched for what makes it whole: client libraries take any end of a
//     connection for success. Of a whole one the last events come with [io.EOF]. Where it is cut they come with [ErrCut]:
//     a line without its end is dropped and the event that is open is closed, so that one of the caller's own may follow ([api.Stream.Error] with [Events.Number]).
//  6. [Usage] counts the tokens of what passes, for metrics and for the limits of keys.
//  7. [WriteDeadline] ends what is written to a client that does not read.
//
// Nothing here is safe for many goroutines; each exchange has its own.
package relay
