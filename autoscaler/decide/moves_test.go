package decide

import (
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestMoves: whose requests are moved, and whose are waited for.
func TestMoves(t *testing.T) {
	engine := api.Runtime{Kind: api.RuntimeEngine}
	for name, test := range map[string]struct {
		victim   api.Function
		kind     int
		phase    phase
		priority int // of the function that gets the room
		want     bool
	}{
		"others are awake":                  {api.Function{Runtime: engine}, surplus, phaseAwake, 0, true},
		"others are awake, worth more":      {api.Function{Runtime: engine, Priority: 2}, surplus, phaseAwake, 0, true},
		"a turn of the same priority":       {api.Function{Runtime: engine}, busy, phaseAwake, 0, false},
		"a turn of a lower priority":        {api.Function{Runtime: engine, Priority: -1}, busy, phaseAwake, 0, true},
		"a turn of a higher priority":       {api.Function{Runtime: engine, Priority: 1}, busy, phaseAwake, 0, false},
		"idle":                              {api.Function{Runtime: engine, Priority: -1}, idle, phaseAwake, 0, false},
		"ill":                               {api.Function{Runtime: engine, Priority: -1}, busy, phaseUnhealthy, 0, false},
		"asleep":                            {api.Function{Runtime: engine, Priority: -1}, busy, phaseAsleep, 0, false},
		"a runtime that tells no state":     {api.Function{Runtime: api.Runtime{Kind: api.RuntimeVLLM}}, surplus, phaseAwake, 0, false},
		"a runtime that its image knows":    {api.Function{}, surplus, phaseAwake, 0, true},
		"a handler between it and requests": {api.Function{Runtime: engine, Handler: []string{"x"}}, surplus, phaseAwake, 0, false},
	} {
		dm := &demand{f: &function{Function: &Function{Spec: api.Function{Runtime: engine, Priority: test.priority}}}}
		v := &victim{kind: test.kind, i: &instance{f: &function{Function: &Function{Spec: test.victim}}, phase: test.phase}}
		if got := moves(dm, v); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
