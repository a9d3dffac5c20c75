package knative

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/cluster"
)

// TestWakeTrace: kn rouse trace shows a cold start with what Kubernetes did, and a wake.
func TestWakeTrace(t *testing.T) {
	parallel(t)
	f := create(t, "waketrace", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=3s"})
	if _, err := f.c.Kn(t.Context(), "rouse", "trace", f.name, "-n", f.namespace()); err == nil || !strings.Contains(err.Error(), "no wake of waketrace is on record") {
		t.Errorf("before the first request: %v", err)
	}
	f.ask("red blue")
	cold := f.wakeTrace("cold")
	f.traced(cold, "cold", api.SpanHold, "event", "decision", "start", "start call", "API write", "pod created", "scheduled", "started",
		api.StepLoading, api.SpanDispatch, api.SpanFirstToken)
	f.hasState("asleep")
	f.ask("sun moon")
	hot := f.wakeTrace("hot")
	f.traced(hot, "hot", api.SpanHold, api.SpanWake, api.StepWaking, api.SpanDispatch, api.SpanFirstToken)
	if hot.Trace == cold.Trace || hot.Instance != cold.Instance {
		t.Errorf("two wakes of one pod: %s of %s and %s of %s", cold.Trace, cold.Instance, hot.Trace, hot.Instance)
	}
	out, err := f.c.Kn(t.Context(), "rouse", "trace", f.name, "-n", f.namespace())
	if err != nil || !strings.Contains(out, "hot in ") || !strings.Contains(out, "first token") {
		t.Errorf("got %v\n%s", err, out)
	}
	t.Logf("\n%s", out)
}

// traceOfAColdStartThatDeletesAVictim: the pod of a sleeper has the only GPU, and nobody may share it, so that it has
// to go for the next one's. The record of the next has its end, and what was written for it.
func traceOfAColdStartThatDeletesAVictim(t *testing.T) {
	c := rouse(t)
	showGPUs(t, c, cluster.GPUs{Count: 1, Replicas: 1})
	hasUsed(t, c, 0)
	in := inNamespace(t, c)
	o := newOracle(t)
	victim := simulated(t, in, "freed-a", large, "rouse.dev/sleep-after=1s", "rouse.dev/gone-after=0")
	o.right(victim, 0)
	victim.hasState("asleep")
	pod := victim.onlyPod()
	f := simulated(t, in, "freed-b", large)
	o.right(f, 1)
	freed := f.wakeTrace("cold-freed")
	f.traced(freed, "cold-freed", api.SpanHold, "decision", "victim's sleep", api.SpanVictimEnd, "API write", "start", "start call",
		"pod created", "scheduled", "started", api.StepLoading, api.SpanDispatch, api.SpanFirstToken)
	var writes []string
	for _, s := range freed.Spans {
		switch s.Name {
		case "victim's sleep", api.SpanVictimEnd:
			if string(s.Who) != pod {
				t.Errorf("%s is of %s, want %s", s.Name, s.Who, pod)
			}
		case "API write":
			writes = append(writes, s.Note)
		}
	}
	for _, want := range []string{"scale of freed-a-00001-deployment to 0", "deletion of " + pod, "scale of freed-b-00001-deployment to 1"} {
		if !slices.Contains(writes, want) {
			t.Errorf("no write %q among %q", want, writes)
		}
	}
	out, err := f.c.Kn(t.Context(), "rouse", "trace", f.name, "-n", f.namespace())
	if err != nil || !strings.Contains(out, "cold-freed in ") || !strings.Contains(out, "victim's end: "+pod) {
		t.Errorf("got %v\n%s", err, out)
	}
	t.Logf("\n%s", out)
}

// durations are those of a record as -o json prints it: texts.
var durations = regexp.MustCompile(`"(?:total|after|took)": "[^"]+"`)

// inNanoseconds writes one of them as the types of package api have it.
func inNanoseconds(field []byte) []byte {
	name, text, _ := strings.Cut(string(field), ": ")
	d, err := time.ParseDuration(strings.Trim(text, `"`))
	if err != nil {
		return field // the record can't be read, and says so
	}
	return fmt.Appendf(nil, "%s: %d", name, d)
}

// wakeTrace waits for the last record to be of a path.
func (f *function) wakeTrace(path api.Path) (o api.WakeTrace) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("the last record of %s is of a %s start", f.name, path), func() string {
		out, err := f.c.Kn(f.t.Context(), "rouse", "trace", f.name, "-n", f.namespace(), "-o", "json")
		if err == nil {
			err = json.Unmarshal(durations.ReplaceAllFunc([]byte(out), inNanoseconds), &o)
		}
		switch {
		case err != nil:
			return err.Error()
		case o.Path != path || !slices.ContainsFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanFirstToken }):
			return fmt.Sprintf("it is of a %s start with %d spans", o.Path, len(o.Spans))
		}
		return ""
	})
	return o
}

// traced checks the spans of a record.
func (f *function) traced(o api.WakeTrace, path api.Path, names ...string) {
	f.t.Helper()
	var got []string
	for _, s := range o.Spans {
		got = append(got, s.Name)
		if s.After < 0 || s.Took < 0 || s.End() > o.Total {
			f.t.Errorf("%s: %s lies at %s for %s in %s", path, s.Name, s.After, s.Took, o.Total)
		}
	}
	for _, n := range names {
		if !slices.Contains(got, n) {
			f.t.Errorf("%s: no span %q among %q", path, n, got)
		}
	}
}
