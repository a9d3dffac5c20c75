package render

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

var update = flag.Bool("update", false, "write testdata anew")

const ms = time.Millisecond

// wakeTrace is a wake of n with spans that lie in one another.
func wakeTrace(total time.Duration, spans ...api.Span) api.WakeTrace {
	o := api.WakeTrace{
		Function: "default/big", Instance: "big-0001", Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Root: "00f067aa0ba902b7", Activator: "local",
		Path: "hot", By: api.PartAutoscaler, Start: time.Date(2026, 3, 1, 12, 30, 45, 123e6, time.Local), Total: total,
	}
	for _, s := range spans {
		o.Add(s)
	}
	return o
}

func TestWaterfall(t *testing.T) {
	hold := api.Span{ID: "h", Name: api.SpanHold, Part: api.PartActivator, Took: 2400 * ms}
	call := api.Span{ID: "w", Parent: "h", Name: api.SpanWake, Part: api.PartAutoscaler, After: 802 * ms, Took: 1590 * ms}
	swap := wakeTrace(3*time.Second, hold,
		api.Span{ID: "e", Parent: "h", Name: "event", Part: api.PartAutoscaler, After: 20 * time.Microsecond, Took: 410 * time.Microsecond},
		api.Span{ID: "d", Parent: "h", Name: "decision", Part: api.PartAutoscaler, After: 430 * time.Microsecond, Took: 90 * time.Microsecond,
			Note: "idle for 2m0s; makes room for default/big, which lacks 40 GiB of GPU-7b1c and would be asleep for\nlonger than its minimum stay otherwise"},
		api.Span{ID: "v", Parent: "h", Name: "victim's sleep", Part: api.PartAutoscaler, Who: "small-0007", After: 520 * time.Microsecond, Took: 800 * ms},
		call,
		api.Span{ID: "s1", Parent: "w", Name: api.StepWaking, Part: api.PartInstance, After: 807 * ms, Took: 1200 * ms},
		api.Span{ID: "s2", Parent: "w", Name: api.StepProbing, Part: api.PartInstance, After: 2007 * ms, Took: 380 * ms},
		api.Span{ID: "x", Name: api.SpanDispatch, Part: api.PartActivator, After: 2400 * ms, Took: 60 * time.Microsecond},
		api.Span{ID: "f", Name: api.SpanFirstToken, Part: api.PartActivator, After: 2400*ms + 60*time.Microsecond, Took: 599 * ms},
	)
	lone := wakeTrace(0)
	lone.Path, lone.By, lone.Activator = "cold", api.PartAutoscaler, ""
	odd := wakeTrace(10*ms,
		api.Span{ID: "a", Parent: "b", Name: "a step with a very long name indeed", Part: "a part of somebody else", Took: 20 * ms},
		api.Span{ID: "b", Parent: "a", Name: "its own grandchild", After: 9 * ms, Took: 5 * ms},
		api.Span{ID: "c", Parent: "nobody", Name: "an orphan", Part: api.PartInstance, After: 10 * ms})
	odd.By = ""
	for name, o := range map[string]api.WakeTrace{"swap": swap, "lone": lone, "odd": odd} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := Waterfall(&got, o); err != nil {
				t.Fatal(err)
			}
			golden(t, "waterfall-"+name+".txt", got.String())
			for _, line := range strings.Split(got.String(), "\n") {
				if n := utf8.RuneCountInString(line); n > pageWidth {
					t.Errorf("a line has %d columns: %s", n, line)
				}
			}
		})
	}
}

func TestWaterfalls(t *testing.T) {
	hot := wakeTrace(12*ms, api.Span{ID: "h", Name: api.SpanHold, Part: api.PartActivator, Took: 9 * ms})
	hot.By = api.PartActivator
	var got strings.Builder
	if err := Waterfalls(&got, []api.WakeTrace{wakeTrace(90 * time.Second), hot}); err != nil {
		t.Fatal(err)
	}
	golden(t, "waterfalls.txt", got.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}
