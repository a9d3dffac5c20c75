package autoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// followTwin has every plan of a compared with that of a world which is made anew: a
// record that changes and is not touched shows here.
func followTwin(t *testing.T, a *Autoscaler) {
	a.twin = func(now time.Time, actions []decide.Action) {
		whole, _ := decide.Plan(a.snapshot(), now)
		if d := cmp.Diff(whole, actions); d != "" {
			t.Errorf("at %s the world is not what the records say (-records +world):\n%s", now, d)
		}
	}
}

// snapshot is all that plans look at.
func (a *Autoscaler) snapshot() decide.Snapshot {
	s := decide.Snapshot{Policy: a.cfg.Policy, Devices: a.cfg.Devices}
	for _, f := range a.order {
		if spec, declared := a.planned(f); declared {
			s.Functions = append(s.Functions, spec)
		}
		s.Instances = append(s.Instances, f.plain()...)
	}
	return s
}
