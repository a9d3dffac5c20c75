// Package autoscaler decides which instances exist and which of them are awake. Nothing else starts, sleeps or stops an
// instance, and activators wake one only under its grants. How an instance is started or reached is behind [Effects].
//
// The life of a decision:
//
//  1. Activators report demand and instances report their state, as levels, not changes ([Autoscaler.Receive]).
//  2. The owner loop ([Autoscaler.Run]) applies all messages that have come, and plans ([decide.Plan]).
//  3. Each action becomes one call of [Effects] in its own goroutine. Its result returns to the loop as a message.
//  4. The decision and its reason are kept ([Autoscaler.Why]), logged, counted, and emitted as an [api.EventDecision].
//  5. If the loop acted it plans once more. Then it sleeps until a message or the next deadline.
//
// All of a round happens at one time ([clock]). Everything that decisions depend on comes in as an [input], results of
// calls included. It is recorded ([Config].Record), and a [Replay] gives the decisions again.
//
// After a restart, functions are put again, and instances report again and are adopted. An earlier grant may be out: the
// memory for a sleeper to be awake stays reserved until it has seen an epoch of this autoscaler.
package autoscaler
