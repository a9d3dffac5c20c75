package autoscaler

import (
	"context"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Memory returns what an earlier process learned. It must not block: the owner loop calls it.
type Memory interface {
	// Recall returns what was learned of a function that runs the same; the zero value: nothing was.
	Recall(f api.Function) Times
}

// Times are 0 if not measured.
type Times struct {
	Load  time.Duration                    `json:"load,omitempty"`
	Wake  [api.Suspended + 1]time.Duration `json:"wake"`
	Sleep time.Duration                    `json:"sleep,omitempty"`
	// FirstSleep is a process's first, if a later one was measured, too.
	FirstSleep time.Duration `json:"firstSleep,omitempty"`
	// Rhythm is [rhythm.Rhythm.Text].
	Rhythm string `json:"rhythm,omitempty"`
}

// mostTime is the longest duration that is believed.
const mostTime = 24 * time.Hour

func (a *loop) recall(spec api.Function) Times {
	if a.cfg.Memory == nil {
		return Times{}
	}
	return a.cfg.Memory.Recall(spec)
}

func (t Times) experience() (e inventory.Experience) {
	e.Load, e.Sleep = believed(t.Load), believed(t.Sleep)
	if e.FirstSleep = believed(t.FirstSleep); e.FirstSleep > 0 && e.Sleep > 0 {
		e.Again = 1
	}
	for level := api.Level1; level <= api.Suspended; level++ {
		e.Wake[level] = believed(t.Wake[level])
	}
	return e
}

func (a *loop) recallRhythm(f *function, t Times) {
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

// Rhythms returns [rhythm.Rhythm.Text] by function, for a [Memory] to keep. After Run has ended it returns the last
// state.
func (a *Autoscaler) Rhythms() map[api.FunctionName]string {
	learned, err := ask(context.Background(), a, a.rhythms)
	if err != nil {
		learned = a.rhythms() // safe: the loop has ended
	}
	texts := make(map[api.FunctionName]string, len(learned)) // outside the loop: it takes long
	for name, r := range learned {
		if text := r.Text(); text != "" {
			texts[name] = text
		}
	}
	return texts
}

// rhythms must be called by the loop.
func (a *loop) rhythms() map[api.FunctionName]*rhythm.Rhythm {
	learned := make(map[api.FunctionName]*rhythm.Rhythm)
	for _, f := range a.order {
		if !f.Undeclared {
			learned[f.Spec.Name] = f.Rhythm.Clone()
		}
	}
	return learned
}

func (a *loop) foretold(f *function) string {
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
