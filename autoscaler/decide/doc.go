// Package decide is the autoscaler's mind: [Plan] looks at everything that is
// known and says what to do now, why, and when to look again.
//
// It is pure. It reads no clock, starts nothing, keeps nothing between calls
// and never changes what it was given; the same [Snapshot] and time give the
// same actions. The simulator calls the very function that production calls.
// Any number of goroutines may call it at once.
//
// One plan:
//
//  1. What takes too long is stopped, and what was declared gone too (overdue.go).
//  2. Orders given by hand are followed (order.go).
//  3. Functions that want an instance awake claim memory, in order of
//     starvation, class, priority and waiting (claim.go). Each claim takes the
//     cheapest way: wake a sleeper, start a new one, make room first, or wait
//     (place.go, victim.go).
//  4. What nobody needs goes down the ladder: awake, asleep, gone (rest.go).
//  5. Sleepers that fit into what is left get standing grants (grant.go).
//
// A plan holds no chains. A victim is put to sleep in one plan and its memory is
// given away in a later one, when the instance has reported what it really left.
// In between the memory that is on its way belongs to the claim that asked for
// it, because claims are served in an order that does not change by being served.
//
// What keeps it fair and calm (see [Policy] for the numbers):
//
//   - A busy instance is a victim only after it has stayed long enough to be
//     worth the switch, and its competitor has starved for a turn's wait.
//     Starving counts from the last moment a function had an instance awake, so
//     whoever just had the turn goes to the end of the line.
//   - A higher priority is served first, and interrupts sooner, but whoever
//     starves for [Policy.Patience] turns goes before everybody.
//   - An idle instance that has just woken is left alone for a moment no longer
//     than half of what bringing it back costs.
package decide
