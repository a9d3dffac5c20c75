package inventory

import "github.com/rouse-dev/rouse/api"

// Room is the amount that pods may still request on a node. The scheduler counts pods' requests, asleep or awake, and
// not their use.
type Room struct {
	Node string
	// Free is not requested by any pod; Leaving is requested by pods that are being deleted.
	Free, Leaving api.Requests
}

// UnmanagedPod is a pod that needs room and is not an instance's pod without a node. Either it is another's pod that fits on no node:
// sleepers make room for it, because without sleep those instances would have been stopped. Or it is a sleeper's that must get back
// requests from its node before it wakes.
type UnmanagedPod struct {
	Name string // namespace/name
	// Function is the sleeper's function; empty for another's pod.
	Function api.FunctionName
	// Requests are the requests of its pod; for a sleeper, in addition to those that it has.
	Requests api.Requests
	// Candidates are the nodes that could take it.
	Candidates []string
}
