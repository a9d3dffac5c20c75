package dualpod

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Marks are when the steps of a start or wake happened; zero: it did not, or is unknown.
// Those of Kubernetes are by its own clock and full seconds where it tells no better.
type Marks struct {
	Path api.Path
	// Asked is when it was wanted; Created, Scheduled and Started are the requester's pod's,
	// Joined is when it has said which devices it was given.
	Asked, Created, Scheduled, Started, Joined time.Time
	// Bound is when the provider was chosen, or decided to be made; where it was made, Made is when its pod
	// was there and Up when its function said so; Ready is when it was awake.
	Bound, Made, Up, Ready time.Time
}

// Steps calls each with those steps; each begins where the one before it ended. A claim that came earlier has none.
func (m Marks) Steps(each func(name string, began, ended time.Time)) {
	last := m.Asked
	add := func(name string, at time.Time) {
		if !at.IsZero() && !at.Before(last) {
			each(name, last, at)
			last = at
		}
	}
	add(api.SpanCreated, m.Created)
	add(api.SpanScheduled, m.Scheduled)
	add(api.SpanStarted, m.Started)
	add(api.SpanBound, m.Bound)
	add(api.SpanMade, m.Made)
	add(api.SpanServerUp, m.Up)
	add(api.SpanReady, m.Ready)
}
