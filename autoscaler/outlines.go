package autoscaler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// What is kept of outlines.
const (
	keptOutlines = 32   // of a function
	allOutlines  = 2048 // of all together
)

// kept is a record that is kept. It belongs to the loop.
type kept struct {
	f *function
	api.Outline
}

// outlines keeps the records of wakes in the order in which they came, and counts them.
type outlines struct {
	all  []*kept // a ring
	next int

	wake, step *prometheus.HistogramVec
}

func newOutlines() *outlines {
	return &outlines{
		wake: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_seconds", Help: "Time from the arrival of a request that found nobody awake to the first byte of its answer, by how the instance came up: hot, warm, cold, cold-freed (somebody had to make room), or awake (one was, and took nothing at that moment).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}, []string{"path"}),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_step_seconds", Help: "Time that each step of such a wake took; steps lie within one another.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 14),
		}, []string{"step", "path"}),
	}
}

func (k *outlines) register(r *prometheus.Registry) error {
	if err := errors.Join(r.Register(k.wake), r.Register(k.step)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// stepLabels are the steps that metrics know: an instance's words are its own.
var stepLabels = map[string]string{
	api.SpanHold: "hold", api.SpanEvent: "event", api.SpanDecision: "decision", api.SpanVictim: "victim_sleep", api.SpanWake: "wake_call",
	api.SpanStart: "start_call", api.SpanRise: "start", api.SpanDispatch: "dispatch", api.SpanFirstToken: "first_token",
	api.SpanWrite: "api_write", api.SpanVictimEnd: "victim_end", api.SpanMade: "server_pod_made", api.SpanServerUp: "server_pod_up",
	api.SpanCreated: "pod_created", api.SpanScheduled: "pod_scheduled", api.SpanStarted: "pod_started", api.SpanBound: "pod_bound", api.SpanReady: "pod_ready",
	api.StepWaking: "runtime_wake", api.StepWeights: "runtime_weights", api.StepCache: "runtime_cache", api.StepProbing: "probe", api.StepCanary: "canary",
	api.StepRestoring: "restore", api.StepFetching: "fetch", api.StepForking: "fork", api.StepLoading: "load",
}

// observe counts a record.
func (k *outlines) observe(o api.Outline) {
	k.wake.WithLabelValues(string(o.Path)).Observe(o.Total.Seconds())
	for _, s := range o.Spans {
		label, found := stepLabels[s.Name]
		if !found {
			label = "other"
		}
		k.step.WithLabelValues(label, string(o.Path)).Observe(s.Took.Seconds())
	}
}

// outlineOf is the record of a trace; nil: there is none.
func (f *function) outlineOf(trace string) *kept {
	for _, k := range slices.Backward(f.outlines) {
		if k.Trace == trace {
			return k
		}
	}
	return nil
}

// keep keeps a record; a newer one of the same trace takes its place.
func (a *Autoscaler) keep(f *function, o api.Outline) {
	if known := f.outlineOf(o.Trace); known != nil {
		known.Outline = o
		return
	}
	if len(f.outlines) == keptOutlines {
		f.outlines = slices.Delete(f.outlines, 0, 1)
	}
	k := &kept{f, o}
	f.outlines = append(f.outlines, k)
	if len(a.outlines.all) < allOutlines {
		a.outlines.all = append(a.outlines.all, k)
		return
	}
	oldest := a.outlines.all[a.outlines.next]
	if of := oldest.f; len(of.outlines) > 0 && of.outlines[0] == oldest {
		of.outlines = slices.Delete(of.outlines, 0, 1)
	}
	a.outlines.all[a.outlines.next] = k
	a.outlines.next = (a.outlines.next + 1) % allOutlines
}

// Bounds of what is believed of an activator's record.
const (
	mostOutlineSpans = 64
	mostWord         = 300
)

// checkOutline cuts a record to its bounds and says what is wrong with it.
func checkOutline(id string, o *api.Outline) error {
	switch {
	case o.Function == "" || o.Instance == "" || o.Activator == "":
		return api.BadRequest("data", "event %s: want a function, an instance and an activator", id)
	case !api.ValidTrace(o.Trace) || !api.ValidSpan(o.Root):
		return api.BadRequest("data", "event %s: want the IDs of a trace and of its root span, 32 and 16 hexadecimal digits", id)
	case o.Total < 0 || len(o.Spans) > mostOutlineSpans:
		return api.BadRequest("data", "event %s: want a total of at least 0, and at most %d spans (have %d)", id, mostOutlineSpans, len(o.Spans))
	}
	spans := o.Spans
	o.Spans, o.Path = nil, ""
	for _, s := range spans {
		s.Name, s.Note = clip(s.Name), clip(s.Note)
		o.Add(s)
	}
	return nil
}

// clip bounds a text that others wrote.
func clip(s string) string {
	if len(s) > mostWord {
		return s[:mostWord] + "…"
	}
	return s
}
