// Package adapters keeps an instance's LoRA adapters and lists its models.
//
// The life of an adapter:
//
//  1. It is declared with the function, or registered by POST /adapters/{id} with {"path": "…"}. Its name must be unused, and its path
//     must lie inside the function's folder of adapters after symbolic links are resolved.
//  2. It is loaded into the runtime, which holds a slot like a request: the runtime can't fall asleep meanwhile. If the runtime accepts
//     no requests the adapter is pending.
//  3. [Registry.Restore] loads the registered adapters after each start and wake, between the runtime's first token and its first
//     request. A declared adapter that can't be loaded fails the start. Any other becomes failed.
//  4. DELETE /adapters/{id} unloads and forgets it. [Registry.Declare] does both for the function's list.
//
// If there is room for fewer adapters than there are ([Config.Room]), the others are on standby: a request that names one has it loaded,
// in the place of the least recently used one ([Registry.Hold]). An adapter that a request uses is never unloaded.
//
// The paths follow the model server protocol of the Gateway API inference extension (its first proposal), with a list of all adapters in
// addition.
//
// A [Registry] is safe for many goroutines and starts none. Changes happen one after the other; reading never waits for them.
package adapters
