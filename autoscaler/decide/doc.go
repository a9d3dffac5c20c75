// Package decide is the autoscaler's policy: [Plan] takes everything that is known and returns what to do now, why, and
// when to plan again.
//
// It reads no clock, keeps nothing, and never changes its input. It is safe for concurrent use.
//
// One plan:
//
//  1. Instances that take too long, or whose function is gone, are stopped (scaledown.go).
//  2. Operators' orders are followed (plan.go).
//  3. Sleepers are kept within their limits on each device (limit.go).
//  4. Demands for one more awake instance are served, in order of starvation, class, priority and waiting (demand.go). Each takes the cheapest way: wake
//     a sleeper, start a new one, make room first, or wait (search.go, victim.go, serve.go). Predicted demands come last (foresee.go).
//  5. If the scheduler finds no node for a pod, the least valuable sleepers of one node shrink or go (pods.go).
//  6. Instances that are not needed go one step down: awake, asleep, stopped (scaledown.go).
//  7. Sleepers that fit into the free memory get standing grants (grant.go).
//
// Devices are the host memory and the GPUs of one machine, or of each node of a cluster (topology.go). An instance
// holds memory of one node's host and of some of its GPUs.
//
// A plan contains no chains: a victim sleeps in one plan, and its memory is allocated in a later one, when it has
// reported what it released. In between the coming memory belongs to the demand that asked for it.
//
// Rules of grants and epochs (epochs.go, docs/design/0006-grants.md):
//
//  1. Every order and grant has an epoch ([Epochs.Next]), higher than any given out for the instance before.
//  2. A grant counts as used until the instance itself has reported a later epoch ([SettleGrant]). Nothing else ends
//     it.
//  3. An instance that another leader started, or that has lost its epoch, is assumed to hold a grant of any earlier
//     epoch ([AssumeGranted]).
//
// What keeps it fair and stable ([Policy] has the numbers):
//
//   - A busy instance becomes a victim only after it has stayed long enough to be worth the switch, and its competitor
//     has starved for a turn's wait.
//   - A higher priority is served first, but a function that has starved for four turns goes before all others.
//   - An idle instance that has just woken is left alone for a moment, or, if its next request is likely soon, for as
//     long as its wake is worth.
package decide
