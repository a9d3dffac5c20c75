package autoscaler

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

const (
	keptAttempts = 4    // with their spans: reports of several wakes may cross
	keptWakes    = 32   // of a function
	allWakes     = 2048 // of all together
)

// wakeStore keeps the traces of the last wakes, and counts them. A record has three parts:
//
//  1. the autoscaler's work, which Demand begins for a request, or Startup and Room without one
//  2. the instance's steps (Awake), and Kubernetes' for the pod (PodSteps)
//  3. the activator's report, which comes last (Woken)
//
// It is safe for concurrent use, and no call blocks.
type wakeStore struct {
	tracer     *waketrace.Tracer
	took, step *prometheus.HistogramVec

	mu        sync.Mutex // guards all below and its contents
	functions map[api.FunctionName][]*wake
	all       []*wake // in the order in which they came
}

// newWakes' e and registry may be nil.
func newWakes(e *waketrace.Exporter, registry prometheus.Registerer) *wakeStore {
	s := &wakeStore{
		tracer: waketrace.NewTracer(e), functions: make(map[api.FunctionName][]*wake),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_seconds", Help: "Time from the arrival of a request that found no instance awake to the first byte of its answer, by how the instance came up: hot, warm, cold, cold-freed (another had to make room), or awake (one was, and took nothing at that moment).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}, []string{"path"}),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_step_seconds", Help: "Time that each step of such a wake took; steps lie within one another.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 14),
		}, []string{"step", "path"}),
	}
	if registry != nil {
		registry.MustRegister(s.took, s.step)
	}
	return s
}

// The caller holds mu.
func (s *wakeStore) add(w *wake) *wake {
	of := append(s.functions[w.function], w)
	if n := len(of) - keptAttempts; n > 0 && of[n-1].done {
		of[n-1].root = nil
	}
	s.functions[w.function] = of[max(0, len(of)-keptWakes):]
	if s.all = append(s.all, w); len(s.all) > allWakes {
		oldest := s.all[0]
		s.all = slices.Delete(s.all, 0, 1)
		if of := s.functions[oldest.function]; len(of) > 0 && of[0] == oldest {
			s.functions[oldest.function] = of[1:]
		}
	}
	return w
}

// find returns a function's last wake for which is returns true; nil: none. The caller holds mu.
func (s *wakeStore) find(name api.FunctionName, is func(*wake) bool) *wake {
	for _, w := range slices.Backward(s.functions[name]) {
		if is(w) {
			return w
		}
	}
	return nil
}

// The caller holds mu.
func (s *wakeStore) underWay(name api.FunctionName) *wake {
	return s.find(name, func(w *wake) bool { return !w.done })
}

// coming returns the attempt that an instance comes up for. The caller holds mu.
func (s *wakeStore) coming(name api.FunctionName, id api.InstanceID) *wake {
	if w := s.find(name, func(w *wake) bool { return w.of(id) != nil && w.root != nil }); w != nil {
		return w
	}
	return s.underWay(name) // an activator wakes it, or its name is not final yet
}

func (s *wakeStore) Forget(name api.FunctionName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.functions, name)
}

// mostWay is the longest credible delay of a demand.
const mostWay = time.Minute

// Demand begins an attempt if requests wait without one, and ends one that none waits for. waiting is at all activators.
func (s *wakeStore) Demand(d api.Demand, waiting int, now time.Time) {
	if d.Trace == "" && waiting > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.underWay(d.Function)
	if waiting == 0 && w != nil && !w.own && !w.acted {
		w.done = true
	}
	t, found := api.ParseTrace(d.Trace)
	if d.Waiting == 0 || !found || w != nil || s.find(d.Function, func(w *wake) bool { return w.trace == t.ID }) != nil {
		return
	}
	w = s.add(&wake{function: d.Function, trace: t.ID, root: s.tracer.Join(t), activator: d.Activator, sent: d.At, heard: now})
	began := d.At
	if way := now.Sub(began); way < 0 || way > mostWay {
		began = now
	}
	w.way = w.root.Start(waketrace.Step{Name: spanEvent, Part: api.PartAutoscaler, Began: began, Ended: now}).Trace().Span
}

// decided begins an attempt if none is under way. The caller holds mu.
func (s *wakeStore) decided(name api.FunctionName, reason string, now time.Time) *wake {
	w := s.underWay(name)
	if w == nil {
		root := s.tracer.Root(name, api.Trace{}, api.PartAutoscaler, now)
		w = s.add(&wake{function: name, trace: root.Trace().ID, root: root, own: true, heard: now})
	}
	if !w.acted && !w.own {
		w.root.Start(waketrace.Step{Name: spanDecision, Part: api.PartAutoscaler, Began: w.heard, Ended: now, Note: reason})
	}
	w.acted = true
	return w
}

const mostStartups = 32

// Startup begins the start or wake of an instance. It returns the span of the call, and the trace that the instance is
// told.
func (s *wakeStore) Startup(name api.FunctionName, id api.InstanceID, asleep bool, reason string, now time.Time) (call *waketrace.Span, told api.Trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.decided(name, reason, now)
	w.by, w.reason = api.PartAutoscaler, reason
	up := &startup{instance: id}
	if asleep {
		up.call = w.root.Start(waketrace.Step{Name: api.SpanWake, Part: api.PartAutoscaler, Instance: id, Began: now})
	} else { // its name may change
		up.start = w.root.Start(waketrace.Step{Name: spanStartup, Part: api.PartAutoscaler, Began: now})
		up.call = up.start.Start(waketrace.Step{Name: spanStart, Part: api.PartAutoscaler, Began: now})
	}
	w.startups = append(w.startups[max(0, len(w.startups)-mostStartups):], up)
	return up.call, up.told().Trace()
}

func (s *wakeStore) Room(name api.FunctionName, victim api.InstanceID, reason string, now time.Time) *waketrace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.decided(name, reason, now)
	w.freed = true
	return w.root.Start(waketrace.Step{Name: spanVictim, Part: api.PartAutoscaler, Instance: victim, Began: now})
}

func (s *wakeStore) Rename(name api.FunctionName, from, to api.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.find(name, func(w *wake) bool { return w.of(from) != nil }); w != nil {
		w.of(from).instance = to
	}
}

func (s *wakeStore) Gone(name api.FunctionName, id api.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.find(name, func(w *wake) bool { return w.of(id) != nil }); w != nil {
		up := w.of(id)
		up.over = true
		up.start.Done(errGone)
	}
}

var errGone = errors.New("it is gone")

// PodSteps comes before Awake. path is how the pod came up, if the binder of pods knows that; empty: it does not.
func (s *wakeStore) PodSteps(name api.FunctionName, pod api.InstanceID, path api.Path, steps ...waketrace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.coming(name, pod)
	if w == nil {
		return
	}
	within := w.root
	if up := w.of(pod); up != nil {
		within = cmp.Or(up.start, within)
	}
	w.bound = path
	for _, step := range steps {
		step.Part, step.Instance = api.PartKubernetes, pod
		within.Start(step)
	}
}

// Awake makes a record that is shown until the activator's comes.
func (s *wakeStore) Awake(st api.InstanceStatus, came api.Path, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.coming(st.Function, st.Instance)
	if w == nil {
		return
	}
	for _, up := range w.startups {
		steps := st.StepsOf(up.told().Trace().Span)
		if !up.over && (up.instance == st.Instance || len(steps) > 0) {
			up.over = true
			up.start.DoneAt(now, nil)
			up.told().Steps(st.Instance, steps, up.start != nil)
		}
	}
	if !w.awake.IsZero() {
		return
	}
	w.root.Wake().Close()
	w.done, w.path, w.awake = true, w.pathOf(came), now
	if w.own {
		w.root.DoneAt(now, nil)
	}
	if w.record != nil {
		return // the activator was faster
	}
	root := w.root.Trace()
	w.record = &api.WakeTrace{
		Function: st.Function, Instance: st.Instance, Trace: root.ID, Root: root.Span, Unsampled: root.Unsampled,
		Path: w.path, By: w.by, Activator: w.activator, Reason: w.reason, Start: w.heard, Total: now.Sub(w.heard),
	}
	w.into(w.record, w.heard, w.record.Whole())
}

// Woken takes in an activator's record; came is empty if the instance is gone again.
func (s *wakeStore) Woken(o api.WakeTrace, came api.Path, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.find(o.Function, func(w *wake) bool { return w.trace == o.Trace })
	attempt := w
	if w == nil {
		w = s.add(&wake{function: o.Function, trace: o.Trace})
		if o.By == "" { // another activator's requests waited for it, too
			attempt = s.find(o.Function, func(w *wake) bool { return !w.awake.IsZero() && now.Sub(w.awake) < o.Total+time.Second })
		}
	}
	w.done, w.record = true, &o
	switch {
	case came != "" && attempt != nil:
		o.Path = attempt.pathOf(came)
	case came != "" && o.By != "":
		o.Path = came
	default:
		o.Path = pathAwake
	}
	if attempt != nil && attempt.root != nil {
		if attempt.done = true; o.By == "" {
			o.By, o.Reason = attempt.by, attempt.reason
		}
		attempt.aside(&o)
	}
	s.observe(o)
}

func (s *wakeStore) List(name api.FunctionName) []api.WakeTrace {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []api.WakeTrace
	for _, w := range s.functions[name] {
		if w.record != nil {
			all = append(all, *w.record)
		}
	}
	return all
}

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

// wake is one wake. Its attempt is the autoscaler's part.
type wake struct {
	function  api.FunctionName
	trace     string
	record    *api.WakeTrace  // nil: not known yet
	root      *waketrace.Span // nil: the attempt was not ours, or is long over
	own       bool            // no request asked for it
	activator string          // that reported the demand
	sent      time.Time       // by the activator's clock
	heard     time.Time
	way       string // the ID of the span of the demand's delivery
	acted     bool
	freed     bool // another instance had to go or to sleep for it
	done      bool // an instance is awake, or no request waits
	startups  []*startup
	path      api.Path // of the instance that came up
	bound     api.Path // the same, from the binder of pods
	awake     time.Time
	by        api.Part
	reason    string
}

type startup struct {
	instance    api.InstanceID
	start, call *waketrace.Span // start is nil for a wake; call is of the call
	over        bool            // awake, or gone
}

// told is the parent of the instance's steps.
func (up *startup) told() *waketrace.Span { return cmp.Or(up.start, up.call) }

// of returns the unfinished startup of an instance.
func (w *wake) of(id api.InstanceID) *startup {
	k := slices.IndexFunc(w.startups, func(up *startup) bool { return up.instance == id && !up.over })
	if k < 0 {
		return nil
	}
	return w.startups[k]
}

func (w *wake) pathOf(came api.Path) api.Path {
	if came == PathCold && w.freed {
		came = PathColdFreed
	}
	return cmp.Or(w.path, w.bound, came)
}

// into adds the spans of w to o, which begins at zero by our clock. Spans of other instances that came up are left out,
// but not making room and earlier failures.
func (w *wake) into(o *api.WakeTrace, zero time.Time, within api.Span) {
	others := map[string]bool{w.way: true}
	for _, s := range w.root.Wake().Spans(zero, within) {
		for _, up := range w.startups {
			if s.ID == up.call.Trace().Span || s.ID == up.start.Trace().Span {
				s.Who = up.instance
			}
		}
		room := s.Name == spanVictim || s.Name == api.SpanVictimEnd
		if others[s.Parent] || s.Who != "" && s.Who != o.Instance && !room && s.Note == "" {
			others[s.ID] = true
		}
		if !others[s.ID] {
			o.Add(s)
		}
	}
}

// aside adds the spans of w to the activator's record. An impossible difference of the machines' clocks counts as none.
func (w *wake) aside(o *api.WakeTrace) {
	within := o.Whole()
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		within = o.Spans[k]
	}
	if w.activator != o.Activator {
		// Of another activator's wake we only know when it was awake.
		w.into(o, w.awake.Add(-within.End()), within)
		return
	}
	var busy time.Duration
	for _, s := range w.root.Wake().Spans(w.heard, api.Span{Took: time.Hour}) {
		if s.Part == api.PartAutoscaler {
			busy = max(busy, s.After)
		}
	}
	way := api.Span{ID: w.way, Parent: within.ID, Name: spanEvent, Part: api.PartAutoscaler, After: min(max(0, w.sent.Sub(o.Start)), within.End())}
	if took := w.heard.Sub(w.sent); took > 0 && took <= within.End()-way.After-busy {
		way.Took = took
	}
	o.Add(way)
	w.into(o, w.heard.Add(-way.End()), within)
}

const (
	PathHot       api.Path = "hot"  // a sleeping runtime was woken in place
	PathWarm      api.Path = "warm" // a runtime was started in an existing instance
	PathCold      api.Path = "cold"
	PathColdFreed api.Path = "cold-freed" // after another was stopped or put to sleep
	pathAwake     api.Path = "awake"      // up, but accepted nothing at that moment
)

const (
	spanEvent    = "event"          // from the activator's sending to the autoscaler's receiving
	spanDecision = "decision"       // from the demand until the autoscaler acts
	spanVictim   = "victim's sleep" // with the victim's draining
	spanStart    = "start call"     // until there is a process, or a pod was asked for
	spanStartup  = "start"          // until the instance is awake

	SpanWrite = "API write"

	// With dual pods, the claiming pod.
	SpanCreated   = "pod created"
	SpanScheduled = "scheduled"
	SpanStarted   = "started"

	// Dual pods.
	SpanBound    = "bound"
	SpanMade     = "server pod made"
	SpanServerUp = "server pod up" // until its function reports
	SpanReady    = "ready"
)

// stepLabels are for metrics.
var stepLabels = map[string]string{
	api.SpanHold: "hold", spanEvent: "event", spanDecision: "decision", spanVictim: "victim_sleep", api.SpanWake: "wake_call",
	spanStart: "start_call", spanStartup: "start", api.SpanDispatch: "dispatch", api.SpanFirstToken: "first_token",
	SpanWrite: "api_write", api.SpanVictimEnd: "victim_end", SpanMade: "server_pod_made", SpanServerUp: "server_pod_up",
	SpanCreated: "pod_created", SpanScheduled: "pod_scheduled", SpanStarted: "pod_started", SpanBound: "pod_bound", SpanReady: "pod_ready",
	api.StepWaking: "runtime_wake", api.StepWeights: "runtime_weights", api.StepCache: "runtime_cache", api.StepProbing: "probe", "canary": "canary",
	api.StepRestoring: "restore", api.StepFetching: "fetch", api.StepForking: "fork", api.StepLoading: "load",
}
