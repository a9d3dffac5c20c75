// Package autoscaler decides which instances exist and which of them are awake. Nothing else starts, sleeps or stops an instance, and
// activators wake one only under its grants.
//
// It carries no requests and does not talk to Kubernetes. How an instance is started or reached is behind [Effects].
//
// The life of a decision:
//
//  1. Activators report demand and instances report their state, as events ([Autoscaler.Receive]) or calls ([Autoscaler.ObserveDemand],
//     [Autoscaler.ObserveInstance]). Reports are levels, not changes. None of these block.
//  2. The owner loop ([Autoscaler.Run]) applies all messages that have come, and plans ([decide.Plan]).
//  3. Each action becomes one call of [Effects], in a goroutine of its own. Its result returns to the loop as a message.
//  4. The decision and its reason are kept ([Autoscaler.Why]), logged, counted, and emitted as an [api.EventDecision].
//  5. If the loop acted it plans once more. Then it sleeps until a message comes or the next deadline, and after a
//     long round as long as that took. There is no tick.
//
// Three types share the work: [Autoscaler] takes messages from any goroutine, the loop has the state and plans (autoscaler.go, state.go,
// observe.go), and calls carries actions out and handles the results (act.go, calls.go).
//
// All of a round happens at one time ([clock]). Everything that state or decisions depend on comes in as an [input], results of calls of
// Effects included. Inputs, times and decisions are recorded ([Config].Record), and a [Replay] gives the decisions again.
//
// Every method may be called from any goroutine. The loop owns the state; methods that read it send the loop a message, so they block
// until Run runs.
//
// After a restart, functions are put again and instances report again. An instance that was not started by this process is adopted. An
// earlier grant for it may be out, so once it sleeps the memory for it to be awake stays reserved until it has seen an epoch of this
// autoscaler.
package autoscaler
