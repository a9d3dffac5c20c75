// Package decide is the autoscaler's policy: [Plan] takes everything that is
// known and says what to do now, why, and when to plan again.
//
// It is pure. It reads no clock, starts nothing, and never changes what it was given; the
// same [Snapshot] and time give the same actions. The simulator calls the very function
// that production calls. Any number of goroutines may call it at once.
//
// A [World] is the same state kept between plans, for one goroutine. It plans what Plan
// plans for the same state, and looks only at what can have changed: functions that were put,
// those that wait, those whose time has come, and the devices of all these. Plan is a new
// World with everything put. What a plan books for itself is taken back at its end, so
// that no account can drift from what the instances say.
//
// One plan:
//
//  1. What takes too long is stopped, and what was declared gone too (overdue.go).
//  2. Orders given by hand are followed (order.go).
//  3. Sleepers are held to what they may have of each device (limit.go).
//  4. Demands for one more instance awake are served, in order of
//     starvation, class, priority and waiting (demand.go). Each takes the
//     cheapest way: wake a sleeper, start a new one, make room first, or wait
//     (place.go, spot.go, victim.go). What is foreseen to be wanted comes last (foresee.go). What a search has found is kept for as long as it would find
//     the same again (search.go).
//  5. Where the scheduler finds no node for a pod, the least valuable sleepers of one shrink or go (pods.go).
//  6. What is not needed goes down the ladder: awake, asleep, stopped (scaledown.go).
//  7. Sleepers that fit into what is left get standing grants (grant.go).
//
// Devices are the host memory and the GPUs of one machine, or of each node of a cluster
// (topology.go). An instance is on one node: it holds memory of that node's host and of some of its
// GPUs. The account of what each device has left is kept as instances come and go (ledger.go).
//
// A plan holds no chains. A victim is put to sleep in one plan and its memory is
// given away in a later one, when the instance has reported what it really left.
// In between the memory that is on its way belongs to the demand that asked for
// it, because demands are served in an order that does not change by being served.
//
// What keeps it fair and calm (see [Policy] for the numbers):
//
//   - A busy instance is a victim only after it has stayed long enough to be
//     worth the switch, and its competitor has starved for a turn's wait.
//     Starving counts from the last moment a function had an instance awake, so
//     a function that just had its turn goes to the end of the line.
//   - A higher priority is served first, and interrupts sooner, but a function that has
//     starved for [Policy.Patience] turns goes before all others.
//   - An idle instance that has just woken is left alone for a moment no longer
//     than half of what bringing it back costs.
package decide
