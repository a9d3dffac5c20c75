// Package responses keeps OpenAI's responses for clients that want to find them again (store: true), and goes on from those that
// were kept (previous_response_id). What is kept is in package store, for its owner alone.
//
// It stands in front of whatever answers /v1/responses: Rouse's translation, or a model server that has the API itself. That
// one is told store: false, and is sent the whole conversation as input, so it needs no store, and the next turn may go to
// another instance, or to another model. Nothing is kept that does not ask for it, though OpenAI's own default is the other way round.
//
// The life of one request:
//
//  1. [Read] reads the few fields that matter. A request that has none of them is none for this package.
//  2. The responses that it goes on from are read, the oldest first: what was asked then, and what was answered (conversation.go). One that is not
//     there, or that is another owner's, is a 400, as OpenAI has it.
//  3. The next handler serves the request with the conversation as its input.
//  4. The answer gets an id of the store's. An answer in JSON is kept back until it is on disk; of a stream only the last event is
//     (writer.go). An answer that is an error, or that is cut, is passed on as it is and is not kept.
//  5. Where the store has no room, or fails, the client gets an error in the place of the answer's end: what says that it is
//     stored is.
//
// A [Keeper] is safe for many goroutines. It starts none.
package responses
