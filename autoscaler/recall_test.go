package autoscaler

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// remembered recalls the same of every function.
type remembered Times

func (r remembered) Recall(api.Function) Times { return Times(r) }

// TestRecalled: a function begins with what was learned before; what can't be true is not believed.
func TestRecalled(t *testing.T) {
	a := &loop{cfg: Config{Memory: remembered{Load: 3 * time.Second, Wake: [4]time.Duration{time.Hour, 20 * time.Millisecond, -1}, Sleep: 48 * time.Hour}}}
	got := a.recall(api.Function{}).experience()
	if got.Load != 3*time.Second || got.Wake[api.Level1] != 20*time.Millisecond || got.Wake[api.Level2] != 0 || got.Wake[0] != 0 || got.Sleep != 0 || got.Starts != 0 {
		t.Errorf("it begins with %+v", got)
	}
	if got := (&loop{}).recall(api.Function{}).experience(); got.Load != 0 {
		t.Errorf("without a memory it begins with %+v", got)
	}
}

// TestRhythmsAreKept: what one process has learned of when a function is wanted, the next one acts upon; what is no rhythm is learned again.
func TestRhythmsAreKept(t *testing.T) {
	var text string
	var ended *Autoscaler
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		for range 8 {
			w.request(a, 1, time.Second)
			pass(5 * time.Minute)
		}
		text = w.a.Rhythms()[a.spec.Name]
		if text == "" || len(text) > rhythm.MostText {
			t.Fatalf("what was learned is %q", text)
		}
		if v, _ := w.a.Status(a.spec.Name); !strings.HasPrefix(v.Foreseen, "a request is foreseen at ") || !strings.HasSuffix(v.Foreseen, " of the last 5 forecasts were right") {
			t.Errorf("its status says %q", v.Foreseen)
		}
		ended = w.a
	})
	if got := ended.Rhythms()["default/a"]; got != text {
		t.Errorf("after the end %q was learned, want %q", got, text)
	}
	for name, tc := range map[string]struct {
		text  string
		known bool
	}{"kept": {text, true}, "cut": {text[:len(text)/2], false}, "empty": {"", false}} {
		a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}, Memory: remembered{Rhythm: tc.text}}, nil, nil, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		a.enter(time.Date(2000, 1, 1, 0, 37, 0, 0, time.UTC), 0) // two minutes after the last of them: a bubble's clock begins with the century
		spec := api.Function{Name: "default/a", SleepAfter: time.Minute}.WithDefaults()
		(&functionPut{Spec: spec, Recalled: a.recall(spec)}).apply(a.loop)
		r := a.functions[spec.Name].Rhythm
		if _, known := r.Next(a.now); known != tc.known || r.Trusted() != tc.known {
			t.Errorf("%s: a request is foreseen: %t, trusted: %t; want %t", name, known, r.Trusted(), tc.known)
		}
		spec.NoPrewake = true
		spec.Name = "default/b"
		(&functionPut{Spec: spec, Recalled: a.recall(spec)}).apply(a.loop)
		if a.functions[spec.Name].Rhythm != nil {
			t.Errorf("%s: what is not to be foreseen has a rhythm", name)
		}
	}
}
