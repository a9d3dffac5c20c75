// Package agent is a cluster's side of a multi-cluster setup: it dials the front doors, reports which functions its
// cluster serves, and serves their requests through the cluster's own activator. Package protocol has the life of a
// session.
//
// It never holds a request: one that finds no free slot is given back, and keeps waiting at the front door. It begins
// no request from a front door whose lease has expired. After a second of silence it begins another session in
// parallel, and the earlier one continues its running requests.
package agent
