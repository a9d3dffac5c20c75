package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Scale is how many instances of a function are wanted awake from outside: by another
// brain, by the relay, or a person. It is floor and ceiling within min-scale and
// max-scale, whatever the demand, until it ends: if it is not renewed
// nothing of it is left. With 0 requests are held and nothing is woken for them.
// The zero value is none.
type Scale struct {
	Replicas int
	Until    time.Time
	By       string // who wants it, for people; empty: somebody
}

// On says whether it holds at now.
func (s Scale) On(now time.Time) bool { return s.Until.After(now) }

// String is a part of reasons.
func (s Scale) String() string { return admin.Override(s).String() }

// Bound is what comes of it within the function's own bounds.
func (s Scale) Bound(spec api.Function) int {
	return max(spec.MinScale, min(s.Replicas, max(1, spec.MaxScale)))
}

// Desired is how many instances of a function the last plan wanted awake; 0 also
// where there is no such function.
func (w *World) Desired(name api.FunctionName) int {
	if f := w.fns[name]; f != nil {
		return f.desired
	}
	return 0
}
