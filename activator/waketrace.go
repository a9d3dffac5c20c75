package activator

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// wakeTrace is this activator's trace of one wake. It begins with the request that finds no instance awake. It
// belongs to its function, under mu, until a request that waited for it gets a slot, and from then on to that
// request. It is reported when the first byte of the answer was sent and the calls to instances have ended. A call
// may end last, if the instance answers the speculative request first.
//
// Requests that find an instance awake have no such trace.
type wakeTrace struct {
	f      *function
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

// traceWake records that c waits for an instance to be awake. The caller holds mu.
func (f *function) traceWake(c *call) {
	switch {
	case f.trace != nil:
	case c.trace != nil:
		f.trace, c.trace = c.trace, nil // the instance that had it is gone
	default:
		client := api.TraceFrom(c.req.in.Header)
		t := &wakeTrace{f: f, parent: client.Span, began: c.req.begun, root: f.a.tracer.Root(f.name, client, api.PartActivator, c.req.begun)}
		t.open.Store(1)
		f.trace = t
	}
}

// calls returns the parent span of calls to instances. The caller holds mu.
func (t *wakeTrace) calls() *waketrace.Span {
	if t == nil {
		return nil
	}
	return t.root
}

// begun counts a call that begins. The caller holds mu.
func (t *wakeTrace) begun() {
	if t != nil {
		t.open.Add(1)
	}
}

// called ends the span of a call, after the requests that wait for its end have continued.
func (t *wakeTrace) called(call *waketrace.Span, st api.InstanceStatus, err error, now time.Time) {
	if t == nil {
		return
	}
	call.DoneAt(now, err)
	call.Steps(st.Instance, st.StepsOf(call.Trace().Span), false)
	t.done()
}

// done ends the request or a call, and sends the trace to be reported after the last one.
func (t *wakeTrace) done() {
	if t.open.Add(-1) > 0 {
		return
	}
	select {
	case t.f.a.woken <- t:
	default: // drop the record rather than block a request
	}
}

// wokenBy records that one of our calls woke an instance. The caller holds mu.
func (t *wakeTrace) wokenBy(id api.InstanceID) {
	if t != nil {
		t.woke = id
	}
}

// sawAwake records that an instance is awake. The caller holds mu.
func (t *wakeTrace) sawAwake(now time.Time) {
	if t != nil && t.awake.IsZero() {
		t.awake = now
	}
}

// abandon ends the trace when no request waits any more. The caller holds mu.
func (t *wakeTrace) abandon() {
	if t != nil {
		t.root.Done(errLeft)
	}
}

var errLeft = errors.New("no request waits for it any more")

func (t *wakeTrace) goesTo(id api.InstanceID, now time.Time) {
	if t != nil {
		t.instance, t.picked = id, now
	}
}

// firstByte ends the request when the first byte of its answer was sent.
func (t *wakeTrace) firstByte() {
	t.ended = time.Now()
	t.done()
}

// maxWoken is the number of traces that may wait to be reported.
const maxWoken = 64

// reportWake ends the spans of the request, and emits the record of the wake.
func (a *Activator) reportWake(t *wakeTrace) {
	awake := t.awake
	if awake.IsZero() || awake.After(t.picked) {
		awake = t.picked
	}
	at := t.root.Trace()
	o := api.WakeTrace{Function: t.f.name, Instance: t.instance, Activator: a.cfg.Name, Trace: at.ID, Root: at.Span, Parent: t.parent, Unsampled: at.Unsampled,
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
	a.deps.Emitter.Emit(api.NewEvent(api.EventWoken, "/activator/"+a.cfg.Name, o.Function, o))
}
