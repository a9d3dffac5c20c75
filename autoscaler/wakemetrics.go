package autoscaler

import (
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// stepLabels are the steps that metrics have labels for; others may be any text of an instance.
var stepLabels = map[string]string{
	api.SpanHold: "hold", SpanEvent: "event", SpanDecision: "decision", SpanVictim: "victim_sleep", api.SpanWake: "wake_call",
	SpanStart: "start_call", SpanStartup: "start", api.SpanDispatch: "dispatch", api.SpanFirstToken: "first_token",
	SpanWrite: "api_write", api.SpanVictimEnd: "victim_end", SpanMade: "server_pod_made", SpanServerUp: "server_pod_up",
	SpanCreated: "pod_created", SpanScheduled: "pod_scheduled", SpanStarted: "pod_started", SpanBound: "pod_bound", SpanReady: "pod_ready",
	api.StepWaking: "runtime_wake", api.StepWeights: "runtime_weights", api.StepCache: "runtime_cache", api.StepProbing: "probe", api.StepCanary: "canary",
	api.StepRestoring: "restore", api.StepFetching: "fetch", api.StepForking: "fork", api.StepLoading: "load",
}

// observe counts a record.
func (s *wakeStore) observe(o api.WakeTrace) {
	s.took.WithLabelValues(string(o.Path)).Observe(o.Total.Seconds())
	for _, span := range o.Spans {
		label, found := stepLabels[span.Name]
		if !found {
			label = "other"
		}
		s.step.WithLabelValues(label, string(o.Path)).Observe(span.Took.Seconds())
	}
}

// mostSpans bounds the spans of an activator's record.
const mostSpans = 64

// checkWake cuts a record to its bounds and reports what is wrong with it.
func checkWake(event string, o *api.WakeTrace) error {
	_, valid := api.ParseTrace("00-" + o.Trace + "-" + o.Root + "-01")
	switch {
	case o.Function == "" || o.Instance == "" || o.Activator == "":
		return api.BadRequest("data", "event %s: want a function, an instance and an activator", event)
	case !valid:
		return api.BadRequest("data", "event %s: want the IDs of a trace and of its root span, 32 and 16 hexadecimal digits", event)
	case o.Total < 0 || len(o.Spans) > mostSpans:
		return api.BadRequest("data", "event %s: want a total of at least 0, and at most %d spans (have %d)", event, mostSpans, len(o.Spans))
	}
	spans := o.Spans
	o.Spans, o.Path = nil, ""
	for _, s := range spans {
		s.Name, s.Note = waketrace.Clip(s.Name), waketrace.Clip(s.Note)
		o.Add(s)
	}
	return nil
}
