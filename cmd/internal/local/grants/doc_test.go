// Package grants proves, as far as a search can, that two instances are never awake on memory for one. Its tests
// contain a model of the grant protocol and search all of its states. They also run the real parts together with a
// fault at each step.
//
// It is below cmd/internal/local because it knows all parts; it has no code except its tests.
//
// The model (model_test.go): one or two activators, two autoscalers of which the first may be paused and late, and two
// sleeping instances that do not fit awake together.
//
//   - A message is a fact: once sent it may arrive at any time, any number of times, or never, in any order. So lost,
//     late and repeated messages are one case.
//   - A call may end without an answer at any time, whatever its effect.
//   - Each part may restart at any point, and loses its memory.
//
// The rules are the product's own: [decide.Plan] for the autoscaler's actions; its file epochs.go for epochs,
// reservations and assumed grants; [queue.Permission] for what an activator accepts; [api.StaleEpoch] for what an
// instance refuses.
//
// A check that can't fail proves nothing: for each rule there is a mutant without it, in which the search must find
// both instances awake.
//
// [decide.Plan]: github.com/rouse-dev/rouse/autoscaler/decide.Plan
// [queue.Permission]: github.com/rouse-dev/rouse/activator/queue.Permission
// [api.StaleEpoch]: github.com/rouse-dev/rouse/api.StaleEpoch
package grants
