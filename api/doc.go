// Package api holds the contracts that the parts of Rouse share: names and units, functions, instance states,
// events, grants and errors. It imports only the standard library.
//
//  1. A client's request reaches the activator, which finds its [Function] and an [InstanceStatus] that is [Awake].
//  2. Otherwise the activator holds the request, emits a [Demand] and, under a standing [Grant], wakes an instance
//     itself (package api/control).
//  3. The autoscaler starts, wakes, sleeps and stops instances, and gives and revokes grants.
//  4. Each instance is the authority on its own state, and reports every change.
//
// Payloads are levels, never deltas: a lost, late or repeated one does no harm.
package api
