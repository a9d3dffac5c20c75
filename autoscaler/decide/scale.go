package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Scale is the number of awake instances that an external autoscaler, the relay or a person wants. Until it ends it is
// floor and ceiling within min-scale and max-scale, whatever the demand. With 0, requests are held and start nothing.
// The zero value means no such wish.
type Scale struct {
	Replicas int
	Until    time.Time
	By       string // its author, for display; empty: unknown
}

// On reports whether it applies at now.
func (s Scale) On(now time.Time) bool { return s.Until.After(now) }

// String returns the text used in reasons.
func (s Scale) String() string { return admin.Override(s).String() }

// Bound returns the number within the function's own bounds.
func (s Scale) Bound(spec api.Function) int {
	return max(spec.MinScale, min(s.Replicas, max(1, spec.MaxScale)))
}
