// Package batch serves what clients do not wait for: OpenAI's files and batches, Anthropic's batches of messages, single requests that
// are answered later (Prefer: respond-async), and responses that they want to find again (package responses). What they leave is kept by
// package store, for the tenant that left it; for all others it is not there.
//
// It knows nothing of instances, queues and keys: every line and every request goes through the activator's own handler, as
// its caller would have sent it ([activator.Activator.ServeLater]), so that all rules hold which hold for others. It makes no decision
// about memory either: whatever is ordinary demand wakes its model as any other request does.
//
// The life of one batch:
//
//  1. Its file is uploaded: straight to disk, within bounds ([Config], [store.Config]).
//  2. POST /v1/batches makes the record. [Server.Run] claims it: a goroutine of its own runs it, at most [Config.Active] at a time, those of
//     the owner with the fewest first.
//  3. The input is checked as a whole (input.go). A fault in it fails the batch, with the numbers of lines.
//  4. While instances are awake and have slots that nobody wants, lines are sent in the background (gate.go): at a low priority, refused
//     rather than queued, and no demand. So they wake nothing, and take no memory from others.
//  5. When the time that is left is about what the lines that are left take (due.go), they are ordinary demand.
//  6. Each line has one result. What the server refuses for want of room is sent again; what fails is, up to [Config.Attempts] times; the rest is
//     its result. Results are recorded many at once, and count only under the claim's epoch.
//  7. All lines are done, the time is up or the batch was cancelled: its files are made. Ended by a kill at any point, it goes
//     on with the lines that have no result.
//
// The life of one request that is answered later: it is on disk before the 202; it is demand at once, and is tried again
// until it is answered or [Config.Patience] is over; the answer is kept on disk until its client deletes it or it expires.
//
// A response in the background is such a request, under the id of the response. Once it has ended, whatever became of it, it is a response that is kept.
//
// Goroutines: [Server.Handler] is for many; [Server.Run] is called once, and waits for all that it starts.
package batch
