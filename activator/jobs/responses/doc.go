// Package responses stores OpenAI's responses for clients that retrieve them later (store: true), and continues from
// stored ones (previous_response_id). Package store keeps them, visible only to their owner.
//
// It stands in front of the handler of /v1/responses: Rouse's translation, or a model server that has the API itself.
// The model server gets store: false and the whole conversation as input. So it needs no store, and the next turn may
// go to another instance or model. Responses are stored only on request, although OpenAI stores them by default.
//
// The life of one request:
//
// 1. [Read] extracts the few fields that matter. A request with none of them is passed through.
//  2. The previous responses are read, the oldest first, with their inputs and outputs (conversation.go). If one is
//     missing or another owner's, the request gets a 400, as at OpenAI.
//  3. The next handler serves the request with the conversation as its input.
//  4. The answer gets an id of the store. An answer in JSON is delayed until it is on disk; in a stream only the
//     last event is (writer.go). An error or a cut answer is passed on unchanged and not stored.
//  5. If the store is full or fails, the client gets an error instead of the answer's end: an answer that claims to
//     be stored is.
//
// A [Keeper] is safe for concurrent use. It starts no goroutines.
package responses
