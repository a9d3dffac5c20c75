// Package jobs serves requests that clients do not wait for. These are OpenAI's files and batches, Anthropic's
// message batches, single requests that are answered later (Prefer: respond-async), and stored responses
// ([keeper]). Package store keeps their data for the tenant that created it; other tenants can't see it.
//
// It knows nothing of instances, queues and keys. Every line and every request goes through the activator's own
// handler, as if its caller had sent it ([activator.Activator.ServeLater]), so that the usual rules apply. It makes
// no decisions about memory either: ordinary demand wakes a model like any other request.
//
// The life of one batch:
//
// 1. Its file is uploaded: straight to disk, within limits ([Config], [store.Config]).
//  2. POST /v1/batches creates the record. [Server.Run] claims it and runs it in its own goroutine. At most
//     [Config.Active] run at a time; the owner with the fewest goes first.
//  3. The whole input is checked (input.go). An error in it fails the batch, with line numbers.
//  4. While instances are awake and have unused slots, lines are sent in the background (gate.go): at a low
//     priority, refused rather than queued, and without demand. So they wake nothing, and take no memory from
//     others.
//  5. When the remaining time is about what the remaining lines need (server.go), they become ordinary demand.
//  6. Each line has one result. A line that is refused for lack of room is sent again. A line that fails is sent up
//     to [Config.Attempts] times. Any other answer is its result. Results are recorded in groups, and count only
//     under the claim's epoch.
//  7. When all lines are done, the time is up or the batch was cancelled, its files are created. After a kill at any
//     point, it continues with the lines that have no result.
//
// A request that is answered later is on disk before the 202. It becomes demand at once, and is retried until it is
// answered or [Config.Patience] is over. The answer is kept on disk until its client deletes it or it expires.
//
// A background response is such a request, with the id of the response. Once it has ended, whatever its outcome, it
// is a stored response.
//
// The life of a request whose response is stored, or that continues from a stored one:
//
//  1. The few fields that matter are read. A request with none of them is passed through. Responses are stored only on
//     request, although OpenAI stores them by default.
//  2. The previous responses are read, the oldest first, with their inputs and outputs (conversation.go). If one is
//     missing or another owner's, the request gets a 400, as at OpenAI.
//  3. The next handler serves the request with store: false and the conversation as its input. So the model server needs
//     no store, and the next turn may go to another instance or model.
//  4. The answer gets an id of the store. An answer in JSON is delayed until it is on disk; in a stream only the
//     last event is (writer.go). An error or a cut answer is passed on unchanged and not stored.
//  5. If the store is full or fails, the client gets an error instead of the answer's end: an answer that claims to
//     be stored is.
//
// A conversation is such a chain of responses of its own (store/conversations.go): a request that names it continues from
// its last turn, and adds one.
//
// Goroutines: [Server.Handler] is safe for concurrent use; [Server.Run] is called once, and waits for all goroutines
// that it starts.
package jobs
