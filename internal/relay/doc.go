// Package relay is the common part of Rouse's proxies: the activator in front of instances, an instance in front of
// its runtime, a worker in front of the leader. Its callers decide where a request goes, whether it is retried, and what
// a client is told.
//
// [Request] makes the outbound request. [Source] reads the answer, and [CopyHeader] copies its header. [Events.Next] returns
// whole events as soon as they are complete. A [Judge] decides whether a stream is complete, as client libraries take any
// end of a connection for success. [Usage] counts the tokens that pass, and [WriteDeadline] ends writes to a client that
// does not read.
//
// Nothing here is safe for concurrent use; each exchange has its own objects.
package relay
