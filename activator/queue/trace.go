package queue

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Wake is this activator's trace of one wake. It begins with the request that finds no instance awake. It
// belongs to its function, under mu, until a request that waited for it gets a slot, and from then on to that
// request. It is reported when the first byte of the answer was sent and the calls to instances have ended. A call
// may end last, if the instance answers the speculative request first.
//
// Requests that find an instance awake have no such trace.
type Wake struct {
	f      *Function
	parent string // the client's span; empty: none
	began  time.Time
	root   *waketrace.Span
	open   atomic.Int32 // counts the request, and the calls that have not ended

	woke     api.InstanceID // the instance that one of our calls woke
	awake    time.Time      // when the activator learned it; zero: an instance was awake already, and was avoided
	instance api.InstanceID // the instance that got the request
	picked   time.Time      // when the request got its slot
	sent     time.Time      // when it was last sent to an instance
	answered time.Time      // when the first byte of the answer was there
	ended    time.Time      // when that byte had been sent
}

// traceWake records that w waits for an instance to be awake. The caller holds mu.
func (f *Function) traceWake(w *Want) {
	switch {
	case f.trace != nil:
	case w.wake != nil:
		f.trace = w.TakeWake() // the instance that had it is gone
	default:
		t := &Wake{f: f, parent: w.Trace.Span, began: w.Begun, root: f.q.cfg.Tracer.Root(f.Name, w.Trace, api.PartActivator, w.Begun)}
		t.open.Store(1)
		f.trace = t
	}
}

// calls returns the parent span of calls to instances. The caller holds mu.
func (t *Wake) calls() *waketrace.Span {
	if t == nil {
		return nil
	}
	return t.root
}

// begun counts a call that begins. The caller holds mu.
func (t *Wake) begun() {
	if t != nil {
		t.open.Add(1)
	}
}

// called ends the span of a call, after the requests that wait for its end have continued.
func (t *Wake) called(call *waketrace.Span, st api.InstanceStatus, err error, now time.Time) {
	if t == nil {
		return
	}
	call.DoneAt(now, err)
	call.Steps(st.Instance, st.StepsOf(call.Trace().Span), false)
	t.done()
}

// done ends the request or a call, and sends the trace to be reported after the last one.
func (t *Wake) done() {
	if t.open.Add(-1) > 0 {
		return
	}
	select {
	case t.f.q.woken <- t:
	default: // drop the record rather than block a request
	}
}

// wokenBy records that one of our calls woke an instance. The caller holds mu.
func (t *Wake) wokenBy(id api.InstanceID) {
	if t != nil {
		t.woke = id
	}
}

// sawAwake records that an instance is awake. The caller holds mu.
func (t *Wake) sawAwake(now time.Time) {
	if t != nil && t.awake.IsZero() {
		t.awake = now
	}
}

// abandon ends the trace when no request waits any more. The caller holds mu.
func (t *Wake) abandon() {
	if t != nil {
		t.root.Done(errLeft)
	}
}

var errLeft = errors.New("no request waits for it any more")

func (t *Wake) goesTo(id api.InstanceID, now time.Time) {
	if t != nil {
		t.instance, t.picked = id, now
	}
}

// FirstByte ends the request when the first byte of its answer was sent.
func (t *Wake) FirstByte() {
	t.ended = time.Now()
	t.done()
}

// maxWoken is the number of traces that may wait to be reported.
const maxWoken = 64

// report ends the spans of the request, and emits the record of the wake.
func (q *Queues) report(t *Wake) {
	awake := t.awake
	if awake.IsZero() || awake.After(t.picked) {
		awake = t.picked
	}
	at := t.root.Trace()
	o := api.WakeTrace{Function: t.f.Name, Instance: t.instance, Activator: q.cfg.Name, Trace: at.ID, Root: at.Span, Parent: t.parent, Unsampled: at.Unsampled,
		Start: t.began, Total: t.ended.Sub(t.began)}
	if t.woke == t.instance {
		o.By = api.PartActivator
	}
	calls := t.root.Wake().Spans(t.began, api.Span{Took: awake.Sub(t.began)})
	own := func(name string, from, to time.Time) (id string) {
		id = t.root.Start(waketrace.Step{Name: name, Part: api.PartActivator, Instance: t.instance, Began: from, Ended: to}).Trace().Span
		o.Add(api.Span{ID: id, Name: name, Part: api.PartActivator, After: from.Sub(t.began), Took: to.Sub(from)})
		return id
	}
	hold := own(api.SpanHold, t.began, awake)
	for _, s := range calls {
		s.Parent = cmp.Or(s.Parent, hold)
		o.Add(s)
	}
	own(api.SpanDispatch, awake, t.sent)
	own(api.SpanFirstToken, t.sent, t.answered)
	t.root.DoneAt(t.ended, nil)
	q.cfg.Emitter.Emit(api.NewEvent(api.EventWoken, "/activator/"+q.cfg.Name, o.Function, o))
}
