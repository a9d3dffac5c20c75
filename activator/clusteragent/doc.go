// Package clusteragent is a cluster's side of many clusters: it dials the front doors, says
// what its cluster serves, and serves their requests by the cluster's own activator.
//
// It never holds a request: who finds no free place is given back, and waits on at the
// front door. It begins nothing for a front door that it has not heard from for a lease's time.
//
// The life of a session with one front door:
//
//  1. It dials, through a proxy where there is one, opens the control stream, and says who it is.
//  2. The Welcome names the session, and other front doors: those are dialled too, up to [Config.MaxFronts].
//  3. It dials connections for requests, as many as it has free places, and serves on them.
//  4. It says the state of every function, and then each change, as soon as the last message is on its way.
//  5. Twice a second it sends a beat. An answer renews the lease, from when the beat was sent.
//  6. What the front door wants is passed on as the demand of one more activator.
//  7. After a second of silence another session is begun beside it. The one before goes on with what runs, until
//     that is answered, or nothing is heard of the front door for long.
//
// The methods of [Agent] are safe for many goroutines.
package clusteragent
