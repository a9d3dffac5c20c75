package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Rise is one start or wake that has succeeded, for whoever traces it.
type Rise struct {
	// Trace is that of the call it was made by, or that the instance was started in; zero: none.
	Trace api.Trace
	// Began is when it began, and Took how long it took.
	Began time.Time
	Took  time.Duration
	Steps []api.Step
}

// rise notes the steps of a start or wake: each ends where the next begins. Its
// methods are safe for many goroutines; a nil one notes nothing.
type rise struct {
	trace api.Trace
	began time.Time

	mu    sync.Mutex // guards steps
	steps []api.Step // Took is filled in by the next
}

// mostSteps bounds what a runtime that is tried for long can make.
const mostSteps = 24

// note begins a step, and ends the one under way. One that is under way is not begun again.
func (r *rise) note(step string) {
	if r == nil {
		return
	}
	after := time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.steps); n > 0 {
		if r.steps[n-1].Name == step || n == mostSteps {
			return
		}
		r.steps[n-1].Took = after - r.steps[n-1].After
	}
	r.steps = append(r.steps, api.Step{Name: step, After: after})
}

// shortest is what is worth a line where nothing may have been to do.
const shortest = 50 * time.Microsecond

// end ends the last step and returns all. Nothing is noted after it.
func (r *rise) end() Rise {
	took := time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.steps)
	if n > 0 {
		last := &r.steps[n-1]
		last.Took = took - last.After
		if n > 1 && last.Name == api.StepRestoring && last.Took < shortest {
			r.steps[n-2].Took += last.Took
			r.steps = r.steps[:n-1]
		}
	}
	return Rise{Trace: r.trace, Began: r.began, Took: took, Steps: r.steps}
}

// of returns a context in which the calls of an operation note their steps. While a
// runtime starts it is probed before it can answer, which says nothing: what a start
// does then is told by its stages.
func (r *rise) of(ctx context.Context, k kind) context.Context {
	return runtime.WithSteps(ctx, func(step string) {
		if k == opWake || step == api.StepRestoring {
			r.note(step)
		}
	})
}

// rises begins the notes of a start or wake with its first step. Where a start follows a
// fetch, it goes on with what the fetch began.
func (s *Supervisor) rises(step string) {
	if s.rise == nil {
		s.rise = &rise{trace: s.trace, began: time.Now()}
	}
	s.rise.note(step)
}

// rose ends the notes and returns what is to be told of them, after the report. What
// comes up after this comes up for another reason.
func (s *Supervisor) rose() Rise {
	var r Rise
	if s.rise != nil {
		r = s.rise.end()
	}
	s.rise, s.trace, s.steps, s.stepsSpan = nil, api.Trace{}, r.Steps, r.Trace.Span
	return r
}
