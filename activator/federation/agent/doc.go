// Package agent is a cluster's side of a multi-cluster setup: it dials the front doors, reports which
// functions its cluster serves, and serves their requests through the cluster's own activator.
//
// It never holds a request: one that finds no free slot is given back, and keeps waiting at the front door. It begins
// no request from a front door whose lease has expired.
//
// The life of a session with one front door:
//
// 1. It dials, through a proxy if configured, opens the control stream, and sends its Hello.
//  2. The Welcome names the session and other front doors, which are dialled too, up to four.
//  3. It dials as many connections for requests as it has free slots, and serves on them.
//  4. It reports the state of every function, and then each change, as soon as the last message was sent.
//  5. Twice a second it sends a beat. An answer renews the lease, counted from when the beat was sent.
//  6. The front door's demand is passed on as the demand of one more activator.
//  7. After a second of silence another session is begun in parallel. The earlier one continues its running requests
//     until they are answered, or the front door has been silent for long.
//
// The methods of [Agent] are safe for concurrent use.
package agent
