package decide

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

func TestLoadOf(t *testing.T) {
	awake := func(l *api.Load) *Instance { return &Instance{Status: api.InstanceStatus{State: api.Awake, Load: l}} }
	got := LoadOf([]*Instance{
		awake(&api.Load{Running: 3, Waiting: 2, KVUsage: 0.9, TTFT: 200 * time.Millisecond}),
		awake(&api.Load{Running: 1, Waiting: 1, KVUsage: 0.3, TTFT: 600 * time.Millisecond}),
		awake(nil),
		awake(&api.Load{Waiting: -3, KVUsage: math.NaN(), TTFT: -1}),
		awake(&api.Load{KVUsage: 7}),
		{Status: api.InstanceStatus{State: api.Asleep, Load: &api.Load{Waiting: 50, KVUsage: 1}}},
	})
	if diff := cmp.Diff(Load{Awake: 5, Waiting: 3, KV: 2.2, TTFT: 300 * time.Millisecond}, got); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
}

func TestWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		f       Function
		live    int
		want    int
		pressed string // words of the reason; empty: not pressed
	}{
		"nothing":                              {f: Function{}, want: 0},
		"requests":                             {f: Function{Waiting: 5, Running: 4}, want: 3},
		"requests, up to max-scale":            {f: Function{Waiting: 500}, want: 10},
		"cache":                                {f: Function{Running: 1, Load: Load{Awake: 2, KV: 1.7}}, live: 2, want: 3, pressed: "85 % of the KV cache is in use over 2 awake, the target is 80 %"},
		"cache, but no requests":               {f: Function{Load: Load{Awake: 2, KV: 2}}, live: 2, want: 0},
		"cache, one is on its way":             {f: Function{Running: 1, Load: Load{Awake: 2, KV: 1.7}}, live: 3, want: 3},
		"cache, exactly":                       {f: Function{Running: 1, Load: Load{Awake: 2, KV: 1.6}}, live: 2, want: 2},
		"cache, too near to let one go":        {f: Function{Running: 1, Load: Load{Awake: 2, KV: 0.6}}, live: 2, want: 2},
		"cache, one is enough":                 {f: Function{Running: 1, Load: Load{Awake: 2, KV: 0.5}}, live: 2, want: 1},
		"queue":                                {f: Function{Running: 1, Load: Load{Awake: 2, Waiting: 11}}, live: 2, want: 3, pressed: "11 wait inside"},
		"queue, no more than as many again":    {f: Function{Running: 1, Load: Load{Awake: 1, Waiting: 400}}, live: 1, want: 2, pressed: "400 wait"},
		"first token without a target":         {f: Function{Running: 9, Load: Load{Awake: 1, TTFT: time.Minute}}, live: 1, want: 3},
		"first token":                          {f: Function{Spec: api.Function{Target: api.Target{TTFT: time.Second}}, Running: 6, Load: Load{Awake: 2, TTFT: 1500 * time.Millisecond}}, live: 2, want: 3, pressed: "the first token takes 1.5s with 2 awake, the target is 1s"},
		"first token of one request":           {f: Function{Spec: api.Function{Target: api.Target{TTFT: time.Second}}, Running: 1, Load: Load{Awake: 1, TTFT: time.Minute}}, live: 1, want: 1},
		"held tokens without a rate":           {f: Function{Spec: api.Function{Target: api.Target{TTFT: time.Second}}, Waiting: 4, HeldTokens: 90000, Load: Load{Awake: 1}}, live: 1, want: 1},
		"held tokens":                          {f: Function{Spec: api.Function{Target: api.Target{TTFT: time.Second}}, Waiting: 4, HeldTokens: 9000, Past: inventory.Experience{PromptRate: 5000}, Load: Load{Awake: 1}}, live: 1, want: 2, pressed: "9000 tokens wait, an instance reads 5000 a second"},
		"held tokens, not before one is awake": {f: Function{Spec: api.Function{Target: api.Target{TTFT: time.Second}}, Waiting: 4, HeldTokens: 9000, Past: inventory.Experience{PromptRate: 1}}, want: 1},
	} {
		f := tt.f
		f.Spec.MaxScale, f.Spec.Concurrency = 10, 4
		n, pressed, why := f.Wanted(tt.live)
		if n != tt.want || pressed != (tt.pressed != "") || !strings.Contains(why, tt.pressed) {
			t.Errorf("%s: %d wanted, pressed %t, %q; want %d, %q", name, n, pressed, why, tt.want, tt.pressed)
		}
		f.Spec.MaxScale = 1
		if n, pressed, _ := f.Wanted(tt.live); n > 1 || pressed {
			t.Errorf("%s, with room for one: %d wanted, pressed %t", name, n, pressed)
		}
	}
}
