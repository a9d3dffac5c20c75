package inventory

import "github.com/rouse-dev/rouse/api"

// Room is what a node has left of what pods may request of it. The scheduler counts what pods request, asleep or
// awake, and not what they use.
type Room struct {
	Node string
	// Free is what no pod has; Leaving is what those have that are being deleted.
	Free, Leaving api.Requests
}

// UnmanagedPod is a pod that the core does not take for one without a node: somebody else's that no node takes, for which
// sleepers make room as they would have gone where nothing sleeps; or a sleeper's that is to have more of its node before it wakes.
type UnmanagedPod struct {
	Name string // namespace/name
	// Function is whose sleeper it is; empty for somebody else's pod.
	Function api.FunctionName
	// Requests are what it asks for; of a sleeper, beyond what it has.
	Requests api.Requests
	// Candidates are the nodes that could take it.
	Candidates []string
}
