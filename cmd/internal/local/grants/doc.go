// Package grants proves, as far as a search can, that two instances are never awake on
// memory for one: its tests hold a model of the grant protocol and search all of its
// states, and run the real parts together with a fault at each step.
//
// It is beside cmd/internal/local because it knows all parts; it has no code but its tests.
//
// The model (model_test.go): one or two activators, two autoscalers of which the first
// may be paused and late, and two sleeping instances that do not fit awake together.
//
//   - A message is a fact: once sent it may arrive at any time, any number of times, or
//     never, in any order. So lost, late and repeated messages are one thing.
//   - A call that waits for its answer may end without it at any time, whatever came of it.
//   - Each part may begin anew at any point, and forgets what its memory held.
//
// The rules are the product's own: what an autoscaler does is said by [decide.Plan];
// epochs, reservations and what is suspected by package autoscaler/grants; what an
// activator accepts by [wake.Permission]; what an instance refuses by [api.StaleEpoch].
//
// A check that can't fail proves nothing: for each rule there is a mutant without it, in
// which the search must find both instances awake.
//
// [decide.Plan]: github.com/rouse-dev/rouse/autoscaler/decide.Plan
// [wake.Permission]: github.com/rouse-dev/rouse/activator/wake.Permission
// [api.StaleEpoch]: github.com/rouse-dev/rouse/api.StaleEpoch
package grants
