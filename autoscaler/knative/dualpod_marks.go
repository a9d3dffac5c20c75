package knative

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

// Marks are the times of the steps of a start or wake; zero: it did not happen, or is unknown.
type Marks struct {
	Path api.Path
	// Created, Scheduled and Started are the requester's pod's; Joined is when it reported its devices.
	Asked, Created, Scheduled, Started, Joined time.Time
	// Made and Up are when a new provider's pod existed and reported.
	Bound, Made, Up, Ready time.Time
}

// Steps calls each with the steps; each begins where the previous one ended.
func (m Marks) Steps(each func(name string, began, ended time.Time)) {
	last := m.Asked
	add := func(name string, at time.Time) {
		if !at.IsZero() && !at.Before(last) {
			each(name, last, at)
			last = at
		}
	}
	add(autoscaler.SpanCreated, m.Created)
	add(autoscaler.SpanScheduled, m.Scheduled)
	add(autoscaler.SpanStarted, m.Started)
	add(autoscaler.SpanBound, m.Bound)
	add(autoscaler.SpanMade, m.Made)
	add(autoscaler.SpanServerUp, m.Up)
	add(autoscaler.SpanReady, m.Ready)
}
