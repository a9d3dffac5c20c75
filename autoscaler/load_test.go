package autoscaler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// TestLoadBringsHelp has an awake instance report that its KV cache is nearly full: nobody
// waits at the front door, and yet another one comes, once, and goes when it is not needed.
func TestLoadBringsHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, 8*api.GiB, decide.Policy{})
		spec := api.Function{Name: "default/m", MaxScale: 4, Concurrency: 64, SleepAfter: 30 * time.Second, Memory: api.Memory{Host: api.GiB}}.WithDefaults()
		w.functions[spec.Name] = &fakeFunction{spec: spec, load: time.Second, awake: api.GiB, grants: map[api.InstanceID]api.Grant{}}
		first := &fakeInstance{f: w.functions[spec.Name], up: true, s: api.InstanceStatus{Instance: "m-0009", Function: spec.Name, State: api.Awake, Seq: 1, Concurrency: 64, Memory: api.Memory{Host: api.GiB}}}
		w.instances["m-0009"] = first
		report := func(l api.Load) {
			w.mu.Lock()
			defer w.mu.Unlock()
			first.s.Seq++
			first.s.Load = &l
			w.a.ObserveInstance(first.s)
		}
		starts := func() (n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.calls {
				if strings.Contains(c, " start ") {
					n++
				}
			}
			return n
		}
		w.run(func() {
			w.a.PutFunction(spec)
			demand := func() {
				w.a.ObserveDemand(api.Demand{Function: spec.Name, Activator: "a", Running: 3, LastRequest: time.Now(), At: time.Now()})
			}
			demand()
			report(api.Load{Running: 3, KVUsage: 0.7})
			time.Sleep(5 * time.Second)
			if n := starts(); n != 0 {
				t.Errorf("below the target: %d starts, want none", n)
			}
			demand()
			report(api.Load{Running: 3, KVUsage: 0.95, PromptTokensPerSecond: 1200, Waiting: 1})
			time.Sleep(10 * time.Second)
			demand()
			if n := starts(); n != 1 {
				t.Errorf("above it: %d starts, want 1", n)
			}
			rate, err := ask(t.Context(), w.a, func() float64 { return w.a.functions[spec.Name].Past.PromptRate })
			if err != nil || rate != 1200 {
				t.Errorf("learned %g, %v; want 1200 tokens of prompts a second", rate, err)
			}
			report(api.Load{Running: 1, KVUsage: 0.2})
			for range 6 {
				time.Sleep(10 * time.Second)
				demand()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			slept := 0
			for _, c := range w.calls {
				if strings.Contains(c, " sleep ") {
					slept++
				}
			}
			if slept != 1 {
				t.Errorf("calls %q: want one to be put to sleep", w.calls)
			}
		})
	})
}
