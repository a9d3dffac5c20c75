// Package adapters keeps an instance's LoRA adapters and lists its models.
//
// The life of an adapter:
//
//  1. It is declared with the function, or registered by POST /adapters/{id} with
//     {"path": "…"}. Its name must be nobody else's, its path must lie inside the
//     function's folder of adapters, symbolic links resolved.
//  2. It is loaded into the runtime, which counts as a request there, so that no
//     sleep comes between. Where the runtime takes none now, because it sleeps or
//     starts, the adapter is pending.
//  3. [Registry.Restore], the hook between a runtime's first token and its first
//     request, loads what is registered, after each start and each wake. One that
//     is declared and can't be loaded fails the start. Another one is then failed,
//     and the instance serves without it.
//  4. DELETE /adapters/{id} unloads and forgets it. [Registry.Declare] does both for the
//     list that the function declares, where that changes while the instance runs.
//
// Where there is room for fewer than there are ([Config.Room]), the others are on standby: a request that names
// one has it loaded, in the place of the one that was not used for longest ([Registry.Hold]). One that a
// request uses stays: it is unloaded neither to make room nor, when it is removed, before its last request has ended.
//
// GET /adapters/info and the paths are those of the model server protocol of the
// Gateway API inference extension (its first proposal), with a list of all
// adapters besides. GET is for everybody, POST and DELETE are for the control
// plane: who mounts [Registry.ServeHTTP] sees to that.
//
// [Registry.Models] answers /v1/models for the runtime, also while it sleeps:
// names, aliases, and adapters with their parent.
//
// It does not decide where requests go: a model that the runtime does not know is
// the runtime's to refuse, and one that ignores names goes on ignoring them.
//
// A [Registry] is safe for many goroutines and starts none. Changes happen one
// after the other; reading never waits for them.
package adapters
