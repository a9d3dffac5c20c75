// Package door is a front door's side of a multi-cluster setup: agents dial in, report which functions their
// clusters serve, and get its requests.
//
// For the activator, a function at an agent is an instance, whose slots are the ones that the agent assigned to this
// front door. So requests are held, ordered, sent and retried as on one machine, and this package only knows the way
// to the agent. It never queues, and never decides what a remote cluster wakes: it sends the demand there.
//
// The life of an agent's session:
//
//  1. An agent dials the listener ([Front.Serve]). ALPN separates control streams from connections for requests
//     (package protocol).
//  2. Its control stream begins with a Hello. A [Declaration] must exist for the cluster and match the token or the
//     certificate. Otherwise the stream ends with the reason.
//  3. It dials connections for requests. A secret that only this agent knows assigns them to the session.
//  4. It reports its functions, once it has such a connection. Functions that the declaration does not allow are
//     refused, and the agent is told. The others are added to the activator: new functions, and an instance each.
//  5. The activator's demand ([Front.Emit]) is divided among clusters ([splitDemand]), and sent there.
//  6. Requests use an idle connection of the newest session ([Front.RoundTrip]).
//  7. An agent that leaves gets no new requests. A silent one is lost, and its instances are gone. Another session
//     of the same agent replaces the earlier one at once.
//
// One mutex guards the state. Whatever changes a function there marks it, and before the mutex is unlocked
// [state.refresh] compares what follows from its state with what the activator and the agents were told. The activator
// is told of changes in order, after the mutex is unlocked: it may call back. The methods of [Front] are safe for
// concurrent use.
package door
