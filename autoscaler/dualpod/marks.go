package dualpod

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Marks are when the steps of a start or wake happened; zero: it did not, or is unknown.
// Those of Kubernetes are by its own clock and full seconds where it tells no better.
type Marks struct {
	Path api.Path
	// Requester is the pod that claims; empty while none does.
	Requester api.InstanceID
	// Asked is when it was wanted; Created, Scheduled and Started are the requester's pod's,
	// Joined is when it has said which devices it was given.
	Asked, Created, Scheduled, Started, Joined time.Time
	// Bound is when the provider was chosen, or decided to be made; where it was made, Made is when its pod
	// was there and Up when its function said so; Ready is when it was awake.
	Bound, Made, Up, Ready time.Time
}

// Spans are the steps as spans of an outline that began at start; each begins where
// the one before it ended. A claim that came earlier has none.
func (m Marks) Spans(start time.Time) []api.Span {
	var all []api.Span
	last := m.Asked
	add := func(name string, at time.Time) {
		if at.IsZero() || at.Before(last) {
			return
		}
		all = append(all, api.Span{Name: name, Part: api.PartKubernetes, Who: m.Requester, After: last.Sub(start), Took: at.Sub(last)})
		last = at
	}
	add(api.SpanCreated, m.Created)
	add(api.SpanScheduled, m.Scheduled)
	add(api.SpanStarted, m.Started)
	add(api.SpanBound, m.Bound)
	add(api.SpanMade, m.Made)
	add(api.SpanServerUp, m.Up)
	add(api.SpanReady, m.Ready)
	return all
}
