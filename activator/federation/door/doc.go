// Package door is a front door's side of a multi-cluster setup: agents dial in, report which functions their clusters
// serve, and get its requests. Package protocol has the life of a session.
//
// For the activator, a function at an agent is an instance with the slots that the agent assigned to this front door.
// This package never queues, and never decides what a remote cluster wakes: it sends the demand there ([splitDemand]).
//
// One mutex guards the state. Whatever changes a function there marks it, and before the mutex is unlocked
// [state.refresh] compares what follows with what the activator and the agents were told. The activator is told in
// order, after the mutex is unlocked: it may call back.
package door
