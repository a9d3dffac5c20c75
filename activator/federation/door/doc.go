// Package door is a front door's side of a multi-cluster setup: agents dial in, report which functions their
// clusters serve, and get its requests.
//
// For the activator, a function at an agent is an instance with the slots that the agent assigned to this front door.
// So requests are held, ordered, sent and retried as on one machine. This package never queues, and never decides what
// a remote cluster wakes: it sends the demand there.
//
// A [Declaration] must exist for an agent's cluster and match its token or certificate. Functions that it does not
// allow are refused, and the agent is told. The activator's demand ([Front.Emit]) is divided among clusters
// ([splitDemand]). An agent that leaves gets no new requests; a silent one is lost, and its instances are gone. Package
// protocol has the life of a session.
//
// One mutex guards the state. Whatever changes a function there marks it, and before the mutex is unlocked
// [state.refresh] compares what follows from its state with what the activator and the agents were told. The activator
// is told of changes in order, after the mutex is unlocked: it may call back. The methods of [Front] are safe for
// concurrent use.
package door
