package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// spy is a planner whose plans somebody sees.
type spy struct {
	planner
	see func(now time.Time, actions []decide.Action)
}

func (s spy) Plan(now time.Time) ([]decide.Action, time.Time) {
	actions, next := s.planner.Plan(now)
	s.see(now, actions)
	return actions, next
}

// followTwin has every plan of a compared with that of a world which is made anew: a
// record that changes and is not in the dirty queue shows here.
func followTwin(t *testing.T, a *Autoscaler) {
	var last time.Time
	rounds := 0
	a.planner = spy{a.planner, func(now time.Time, actions []decide.Action) {
		acts := slices.ContainsFunc(actions, func(a decide.Action) bool { return a.Kind != decide.Wait })
		if rounds++; !acts || !now.Equal(last) {
			last, rounds = now, 0
		}
		if rounds > 100 {
			panic(fmt.Sprintf("plans go on acting though nothing changes: %v", actions))
		}
		whole, _ := decide.Plan(a.snapshot(), now)
		if d := cmp.Diff(whole, actions); d != "" {
			t.Errorf("at %s the world is not what the records say (-records +world):\n%s", now, d)
		}
	}}
}

// snapshot is all that plans look at.
func (a *Autoscaler) snapshot() decide.Snapshot {
	s := decide.Snapshot{Policy: a.cfg.Policy, Devices: a.world.Devices()}
	for _, f := range a.order {
		s.Functions = append(s.Functions, f.Function)
		for _, i := range f.Instances {
			s.Instances = append(s.Instances, *i)
		}
	}
	return s
}
