// Package jobs serves requests that clients do not wait for: OpenAI's files and batches, Anthropic's message batches,
// single requests that are answered later (Prefer: respond-async), stored responses ([keeper]) and conversations.
// Package store keeps their data; only the tenant that created it sees it.
//
// Every line and every request goes through the activator's own handler ([activator.Activator.ServeLater]), as if its
// caller had sent it. The package knows nothing of instances, queues and keys, and decides nothing about memory.
//
// [Server.Run] claims a batch and runs it in its own goroutine. It checks the whole input (input.go), then sends lines in
// the background (gate.go): at a low priority, refused rather than queued, and without demand. When the remaining time is
// about what the remaining lines need ([due]), they become ordinary demand. A line that is refused for lack of room is sent
// again; one that fails is sent up to three times. Results are recorded in groups, and count only under the claim's
// epoch. After a kill, the batch continues with the lines that have no result.
//
// A request that is answered later is on disk before the 202, and becomes demand at once. A background response is such
// a request with the response's id; once it has ended, it is a stored response.
//
// A request that continues from stored responses is served with store: false and the conversation as its input, so the
// model server needs no store. Responses are stored only on request, although OpenAI stores them by default. An answer
// in JSON, or a stream's last event, is delayed until the response is on disk (writer.go).
//
// [Server.Handler] is safe for concurrent use; [Server.Run] is called once.
package jobs
