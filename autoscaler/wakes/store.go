// Package wakes keeps the wake traces of the last wakes, as the autoscaler knows them, and counts them.
//
// A record is put together of three parts:
//
//  1. what the autoscaler did for it: a wake attempt, which [Store.Demand] begins for a request, and
//     [Store.Startup] or [Store.Room] where no request asked for it. What is done in the world is a span below
//     the span of the call, which the call's context carries;
//  2. what the instance says of its steps, once it is awake ([Store.Awake]), and Kubernetes of the pod ([Store.PodSteps]);
//  3. what the activator saw, which comes last ([Store.Woken]).
//
// Where no request asked for it, the record is complete when the instance is awake. All is in memory and bounded: 32
// records of a function, 2,048 in all, and the last 4 attempts of a function, since reports of several wakes may cross.
//
// A Store is safe for many goroutines, and none of its calls blocks.
package wakes

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// What is kept.
const (
	keptAttempts = 4    // of a function
	keptRecords  = 32   // of a function
	allRecords   = 2048 // of all together
)

// Store keeps wake traces.
type Store struct {
	tracer     *waketrace.Tracer
	wake, step *prometheus.HistogramVec

	mu        sync.Mutex // guards all below, and what is in it
	functions map[api.FunctionName]*function
	all       []*record // a ring, in the order in which they came
	next      int
}

// function is what is kept of one function.
type function struct {
	attempts []*attempt // the last ones; the last may be under way
	records  []*record
}

// record is one that is kept.
type record struct {
	f *function
	api.WakeTrace
}

// New makes a store whose spans are exported by e, unless it is nil. registry takes the metrics; it may be nil.
func New(e *waketrace.Exporter, registry *prometheus.Registry) (*Store, error) {
	s := &Store{
		tracer: waketrace.NewTracer(e), functions: make(map[api.FunctionName]*function),
		wake: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_seconds", Help: "Time from the arrival of a request that found nobody awake to the first byte of its answer, by how the instance came up: hot, warm, cold, cold-freed (somebody had to make room), or awake (one was, and took nothing at that moment).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}, []string{"path"}),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_wake_step_seconds", Help: "Time that each step of such a wake took; steps lie within one another.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 14),
		}, []string{"step", "path"}),
	}
	if registry != nil {
		if err := errors.Join(registry.Register(s.wake), registry.Register(s.step)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return s, nil
}

// of is what is kept of a function. The caller holds mu.
func (s *Store) of(name api.FunctionName) *function {
	f := s.functions[name]
	if f == nil {
		f = &function{}
		s.functions[name] = f
	}
	return f
}

// Forget drops all of a function.
func (s *Store) Forget(name api.FunctionName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.functions[name]; f != nil {
		f.records = nil
		delete(s.functions, name)
	}
}

// underWay is the attempt under way; nil: none.
func (f *function) underWay() *attempt {
	if n := len(f.attempts); n > 0 && !f.attempts[n-1].done {
		return f.attempts[n-1]
	}
	return nil
}

// attempt is that of a trace; nil: none that is remembered.
func (f *function) attempt(trace string) *attempt {
	for _, e := range slices.Backward(f.attempts) {
		if e.root.Trace().ID == trace {
			return e
		}
	}
	return nil
}

// coming is the attempt that an instance comes up for; nil: none.
func (f *function) coming(id api.InstanceID) *attempt {
	for _, e := range slices.Backward(f.attempts) {
		if e.of(id) != nil {
			return e
		}
	}
	return f.underWay() // an activator wakes it, or it has another name yet
}

func (f *function) begin(e *attempt) *attempt {
	if len(f.attempts) == keptAttempts {
		f.attempts = slices.Delete(f.attempts, 0, 1)
	}
	f.attempts = append(f.attempts, e)
	return e
}

// Demand begins an attempt where requests wait that none is for, and ends one that nobody waits for any more:
// waiting is how many wait at all activators, of which d is the report of one.
func (s *Store) Demand(d api.Demand, waiting int, now time.Time) {
	if d.Trace == "" && waiting > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of(d.Function)
	e := f.underWay()
	if waiting == 0 && e != nil && !e.own && !e.acted {
		e.done = true
	}
	t, found := api.ParseTrace(d.Trace)
	if d.Waiting == 0 || !found || e != nil || f.attempt(t.ID) != nil {
		return
	}
	e = f.begin(&attempt{root: s.tracer.Join(t), activator: d.Activator, sent: d.At, heard: now})
	began := d.At
	if way := now.Sub(began); way < 0 || way > mostWay {
		began = now
	}
	e.event = e.root.Start(waketrace.Step{Name: api.SpanEvent, Part: api.PartAutoscaler, Began: began, Ended: now}).Trace().Span
}

// mostWay is how long the way of a demand is believed to be.
const mostWay = time.Minute

// decided is the attempt that an action is for, which no request asked for where none is under way. The caller holds mu.
func (s *Store) decided(name api.FunctionName, reason string, now time.Time) *attempt {
	f := s.of(name)
	e := f.underWay()
	if e == nil {
		e = f.begin(&attempt{root: s.tracer.Root(name, api.Trace{}, api.PartAutoscaler, now), own: true, heard: now})
	}
	e.decided(reason, now)
	return e
}

// Startup begins the start of an instance, or its wake: it returns the span of the call to it, and the trace that the
// instance is told.
func (s *Store) Startup(name api.FunctionName, id api.InstanceID, wake bool, reason string, now time.Time) (call *waketrace.Span, told api.Trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.decided(name, reason, now)
	e.by, e.reason = api.PartAutoscaler, reason
	up := &startup{instance: id}
	if wake {
		up.call = e.root.Start(waketrace.Step{Name: api.SpanWake, Part: api.PartAutoscaler, Instance: id, Began: now})
	} else { // its name may change
		up.start = e.root.Start(waketrace.Step{Name: api.SpanRise, Part: api.PartAutoscaler, Began: now})
		up.call = up.start.Start(waketrace.Step{Name: api.SpanStart, Part: api.PartAutoscaler, Began: now})
	}
	if len(e.startups) < mostStartups {
		e.startups = append(e.startups, up)
	}
	return up.call, up.told().Trace()
}

// mostStartups is how many of an attempt are followed.
const mostStartups = 32

// Room begins the end or sleep of an instance that makes room for a function: it returns the span of the call to it.
func (s *Store) Room(name api.FunctionName, victim api.InstanceID, reason string, now time.Time) *waketrace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.decided(name, reason, now)
	e.freed = true
	return e.root.Start(waketrace.Step{Name: api.SpanVictim, Part: api.PartAutoscaler, Instance: victim, Began: now})
}

// Rename follows an instance to the ID that it turned out to have.
func (s *Store) Rename(name api.FunctionName, from, to api.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.of(name).attempts {
		for _, up := range e.startups {
			if up.instance == from {
				up.instance = to
			}
		}
	}
}

// Gone takes in that an instance is gone, where it never was awake.
func (s *Store) Gone(name api.FunctionName, id api.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return
	}
	for _, e := range f.attempts {
		if up := e.of(id); up != nil {
			up.over = true
			up.start.Done(errGone)
		}
	}
}

var errGone = errors.New("it is gone")

// PodSteps adds what Kubernetes did for an instance to its start or wake, before the report that it is awake. What was
// told before is told once. path is how it came up, where the binder of pods knows it better; empty: it does not.
func (s *Store) PodSteps(name api.FunctionName, pod api.InstanceID, path api.Path, steps ...waketrace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return
	}
	e := f.coming(pod)
	if e == nil {
		return
	}
	within := e.root
	if up := e.of(pod); up != nil && up.start != nil {
		within = up.start
	}
	e.bound = path
	if e.kubernetes == nil {
		e.kubernetes = make(map[string]bool)
	}
	for _, step := range steps {
		if key := string(pod) + " " + step.Name; !e.kubernetes[key] {
			e.kubernetes[key] = true
			step.Part, step.Instance = api.PartKubernetes, pod
			within.Start(step)
		}
	}
}

// Awake takes in that an instance is awake, which came up as came says. Where a request asked for it, its record is there as it
// is until the activator's comes.
func (s *Store) Awake(st api.InstanceStatus, came api.Path, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of(st.Function)
	e := f.coming(st.Instance)
	if e == nil {
		return
	}
	for _, up := range e.startups {
		if !up.over && (up.instance == st.Instance || len(st.StepsOf(up.told().Trace().Span)) > 0) {
			up.up(st, now)
		}
	}
	if !e.awake.IsZero() {
		return
	}
	e.root.Wake().Close()
	e.done, e.awake, e.path = true, now, e.pathOf(came)
	if e.own {
		e.root.DoneAt(now)
	}
	at := e.root.Trace()
	if f.record(at.ID) != nil {
		return // the activator was faster
	}
	o := api.WakeTrace{
		Function: st.Function, Instance: st.Instance, Trace: at.ID, Root: at.Span, Unsampled: at.Unsampled,
		Path: e.path, By: e.by, Activator: e.activator, Reason: e.reason, Start: e.heard, Total: now.Sub(e.heard),
	}
	e.into(&o, e.heard, o.Whole())
	s.keep(f, o)
}

// up ends a startup.
func (up *startup) up(st api.InstanceStatus, now time.Time) {
	up.over = true
	told := up.told()
	if up.start != nil {
		up.start.DoneAt(now)
	}
	told.Steps(st.Instance, st.StepsOf(told.Trace().Span), up.start != nil)
}

// Woken takes in what an activator saw of a wake, of an instance that came up as came says; empty: it is gone again.
func (s *Store) Woken(o api.WakeTrace, came api.Path, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of(o.Function)
	e := f.attempt(o.Trace)
	if e == nil && o.By == "" { // another activator's requests waited for it too
		for _, other := range slices.Backward(f.attempts) {
			if !other.awake.IsZero() && now.Sub(other.awake) < o.Total+time.Second {
				e = other
				break
			}
		}
	}
	switch {
	case came == "":
		o.Path = api.PathAwake
	case e != nil && e.path != "":
		o.Path = e.path
	case e != nil || o.By != "":
		o.Path = e.pathOf(came)
	default:
		o.Path = api.PathAwake
	}
	if e != nil {
		if o.By == "" {
			o.By, o.Reason = e.by, e.reason
		}
		e.done = true
		e.aside(&o)
	}
	s.keep(f, o)
	s.observe(o)
}

// record is that of a trace; nil: there is none.
func (f *function) record(trace string) *record {
	for _, r := range slices.Backward(f.records) {
		if r.Trace == trace {
			return r
		}
	}
	return nil
}

// keep keeps a record; a newer one of the same trace takes its place. The caller holds mu.
func (s *Store) keep(f *function, o api.WakeTrace) {
	if known := f.record(o.Trace); known != nil {
		known.WakeTrace = o
		return
	}
	if len(f.records) == keptRecords {
		f.records = slices.Delete(f.records, 0, 1)
	}
	r := &record{f, o}
	f.records = append(f.records, r)
	if len(s.all) < allRecords {
		s.all = append(s.all, r)
		return
	}
	oldest := s.all[s.next]
	if of := oldest.f; len(of.records) > 0 && of.records[0] == oldest {
		of.records = slices.Delete(of.records, 0, 1)
	}
	s.all[s.next] = r
	s.next = (s.next + 1) % allRecords
}

// List returns the records of the last wakes of a function, the newest last.
func (s *Store) List(name api.FunctionName) []api.WakeTrace {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return nil
	}
	var all []api.WakeTrace
	for _, r := range f.records {
		all = append(all, r.WakeTrace)
	}
	return all
}
