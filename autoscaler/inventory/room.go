package inventory

import "github.com/rouse-dev/rouse/api"

// Room is what a node has left of what pods may request of it. The scheduler counts what pods request, asleep or
// awake, and not what they use.
type Room struct {
	Node string
	// Free is what no pod has; Leaving is what those have that are being deleted.
	Free, Leaving api.Requests
}

// Stranger is a pod of somebody else that no node takes. Sleepers make room for it, as they would have gone
// where nothing sleeps.
type Stranger struct {
	Name     string // namespace/name
	Requests api.Requests
	// Candidates are the nodes that could take it.
	Candidates []string
}
