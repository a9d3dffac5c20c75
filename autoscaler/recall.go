package autoscaler

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Memory is what was learned of functions before this process began: how long their instances take to start, to wake and to
// sleep. It is called by the owner loop, and must not block.
type Memory interface {
	// Recall returns what was learned of a function that runs the same; the zero value where nothing was.
	Recall(f api.Function) Times
}

// Times are durations that were measured; 0 is one that was not.
type Times struct {
	Load  time.Duration                 `json:"load,omitempty"`
	Wake  [api.Level2 + 1]time.Duration `json:"wake"`
	Sleep time.Duration                 `json:"sleep,omitempty"`
	// FirstSleep is that of a process that had not slept before, where another was measured, too.
	FirstSleep time.Duration `json:"firstSleep,omitempty"`
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

func believed(d time.Duration) time.Duration {
	if d < 0 || d > mostTime {
		return 0
	}
	return d
}
