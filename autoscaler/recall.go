package autoscaler

import (
	"context"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Memory is what was learned of functions before this process began: how long their instances take to start, to wake and to
// sleep, and when they are wanted. It is called by the owner loop, and must not block.
type Memory interface {
	// Recall returns what was learned of a function that runs the same; the zero value where nothing was.
	Recall(f api.Function) Times
}

// Times are durations that were measured, 0 is one that was not; and the times at which a function is wanted.
type Times struct {
	Load  time.Duration                 `json:"load,omitempty"`
	Wake  [api.Level2 + 1]time.Duration `json:"wake"`
	Sleep time.Duration                 `json:"sleep,omitempty"`
	// FirstSleep is that of a process that had not slept before, where another was measured, too.
	FirstSleep time.Duration `json:"firstSleep,omitempty"`
	// Rhythm is [rhythm.Rhythm.Text]; empty: nothing was learned.
	Rhythm string `json:"rhythm,omitempty"`
}

// mostTime bounds what is believed: nothing that takes longer is waited for.
const mostTime = 24 * time.Hour

// recall is what was learned of a function before.
func (a *Autoscaler) recall(spec api.Function) Times {
	if a.cfg.Memory == nil {
		return Times{}
	}
	return a.cfg.Memory.Recall(spec)
}

// experience is what a function begins with.
func (t Times) experience() (e inventory.Experience) {
	e.Load, e.Sleep = believed(t.Load), believed(t.Sleep)
	if e.FirstSleep = believed(t.FirstSleep); e.FirstSleep > 0 && e.Sleep > 0 {
		e.Again = 1
	}
	for level := api.Level1; level <= api.Level2; level++ {
		e.Wake[level] = believed(t.Wake[level])
	}
	return e
}

// recallRhythm gives f what was learned of when it is wanted, where nothing has been learned since.
func (a *Autoscaler) recallRhythm(f *function, t Times) {
	if t.Rhythm == "" || f.Rhythm != nil || f.Spec.NoPrewake {
		return
	}
	r, err := rhythm.Parse(t.Rhythm, a.now)
	if err != nil {
		a.log.Warn("what was learned of when a function is wanted can't be read, and is learned again", "function", f.Spec.Name, "error", err)
		return
	}
	f.Rhythm = r
}

// Rhythms is what was learned of when functions are wanted, for a [Memory] to keep: [rhythm.Rhythm.Text] by function, without those of which
// nothing is known. It waits until [Autoscaler.Run] runs; after Run has ended it is what was learned until then.
func (a *Autoscaler) Rhythms() map[api.FunctionName]string {
	states, err := ask(context.Background(), a, a.rhythms)
	if err != nil {
		states = a.rhythms() // the loop has ended: nobody changes anything
	}
	texts := make(map[api.FunctionName]string, len(states)) // not made by the loop
	for name, s := range states {
		if text := s.Rhythm().Text(); text != "" {
			texts[name] = text
		}
	}
	return texts
}

// rhythms belongs to the loop.
func (a *Autoscaler) rhythms() map[api.FunctionName]*rhythm.State {
	states := make(map[api.FunctionName]*rhythm.State)
	for _, f := range a.order {
		if !f.Undeclared && f.Rhythm != nil {
			states[f.Spec.Name] = f.Rhythm.State()
		}
	}
	return states
}

// foretold says when the next request for f is foreseen, and what that is worth; empty where nothing is foreseen at a time or in an hour.
func (a *Autoscaler) foretold(f *function) string {
	r := f.Rhythm
	if r == nil || f.Spec.NoPrewake {
		return ""
	}
	if w, known := r.Next(a.now); known {
		if !r.Trusted() {
			return fmt.Sprintf("%s; %s: nothing is woken for it until more were right", w, r.Scored())
		}
		return fmt.Sprintf("%s; %s", w, r.Scored())
	}
	if r.Likely(a.now) {
		return r.Hour(a.now)
	}
	if begin, known := r.NextLikely(a.now); known {
		return r.Hour(begin)
	}
	return ""
}

func believed(d time.Duration) time.Duration {
	if d < 0 || d > mostTime {
		return 0
	}
	return d
}
