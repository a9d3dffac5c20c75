// Package api holds the contracts that the parts of Rouse share: names and
// units, what a function is, the state of an instance, events, grants, errors
// and the keys a user writes in a manifest. It imports the standard library
// only and starts nothing.
//
// Who speaks to whom:
//
//  1. A client's request reaches the activator, which finds its [Function] and
//     an [InstanceStatus] that is [Awake].
//  2. Where none is awake the activator holds the request, emits a [Demand] and,
//     under a standing [Grant], wakes an instance itself (package api/control).
//  3. The autoscaler receives demands and statuses, plans, and acts: it starts,
//     wakes, sleeps and stops instances, and gives and revokes grants.
//  4. Each instance is the truth about itself: it reports every change as an
//     [InstanceStatus], and answers a state request with the same.
//
// Payloads are levels, never deltas: a lost, late or repeated one does no harm.
package api
