// Package clusters is a front door's side of many clusters: agents dial in, say what
// their clusters serve, and get its requests.
//
// To the activator a function at an agent is an instance, whose slots are the places
// that the agent gave this front door. So the requests are held, ordered, sent and sent again as on
// one machine, and this package knows nothing of them but the way to the agent. It
// never queues, and never decides what a far cluster wakes: it says there what is wanted.
//
// The life of an agent's session:
//
//  1. An agent dials the listener ([Front.Serve]). ALPN tells control streams from connections for requests (package link).
//  2. Its control stream begins with a Hello. A [Declaration] must know the cluster, and
//     the token or the certificate must be the declared one; else the stream ends with the reason.
//  3. It dials connections for requests, which belong to the session by a secret that only this agent was told.
//  4. It says what it serves, and is heard when it has one of them. What the declaration does not allow is refused, and said; the
//     rest is put into the activator: the function where it is new, and the instance.
//  5. The activator's demand ([Front.Emit]) is divided among clusters (package choose), and sent there.
//  6. Requests go by an idle connection of the newest session ([Front.RoundTrip]).
//  7. An agent that leaves takes nothing new; one that is silent is lost, and its instances are gone. Another
//     session of the same agent takes the place of the one before at once.
//
// One mutex guards sessions and functions. The activator is told what has changed after the mutex is
// let go of, in order: it may call back. The methods of [Front] are safe for many goroutines.
package clusters
