// Package adapters keeps an instance's LoRA adapters and lists its models.
//
// The life of an adapter:
//
//  1. It is declared with the function, or registered by POST /adapters/{id} with
//     {"path": "…"}. Its name must be unused, and its path must lie inside the
//     function's folder of adapters after symbolic links are resolved.
//  2. It is loaded into the runtime. That holds a slot like a request, so that the
//     runtime can't fall asleep meanwhile. If the runtime accepts no requests, because
//     it sleeps or starts, the adapter is pending.
//  3. [Registry.Restore] loads the registered adapters after each start and wake,
//     between the runtime's first token and its first request. A declared adapter that
//     can't be loaded fails the start. Any other becomes failed, and the instance serves
//     without it.
//  4. DELETE /adapters/{id} unloads and forgets it. [Registry.Declare] does both for the
//     function's list, if that changes while the instance runs.
//
// If there is room for fewer adapters than there are ([Config.Room]), the others are
// on standby: a request that names one has it loaded, in the place of the least recently
// used one ([Registry.Hold]). An adapter that a request uses is never unloaded, neither to
// make room nor, after its removal, before its last request has ended.
//
// The paths, and GET /adapters/info, follow the model server protocol of the Gateway
// API inference extension (its first proposal), with a list of all adapters in addition.
// GET is for everybody, POST and DELETE are for the control plane: the code that mounts
// [Registry.ServeHTTP] must enforce that.
//
// [Registry.Models] answers /v1/models for the runtime, also while it sleeps:
// names, aliases, and adapters with their parent.
//
// The package does not route requests: the runtime itself refuses an unknown model, or
// ignores the name.
//
// A [Registry] is safe for many goroutines and starts none. Changes happen one
// after the other; reading never waits for them.
package adapters
