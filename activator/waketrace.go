package activator

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// wakeTrace is what this activator traces of one wake. It begins with the request that
// finds no instance awake. It is its function's, under mu, until a request that waited for it gets a slot,
// and that request's from then on. It is reported when the first byte of the answer has gone out and
// the calls to instances have ended: one may end last of all, where the instance answers what was sent speculatively first.
//
// A request that finds an instance awake has nothing to do with any of this.
type wakeTrace struct {
	f      *function
	parent string // the client's span; empty: it sent none
	began  time.Time
	root   *waketrace.Span
	open   atomic.Int32 // the request, and the calls that have not ended

	woke     api.InstanceID // the one that a call of ours woke
	awake    time.Time      // when the activator knew it; zero: an instance was awake already, and was avoided
	instance api.InstanceID // the one that got the request
	picked   time.Time      // when the request got its slot
	sent     time.Time      // when it was last sent to an instance
	answered time.Time      // when the first byte of the answer was there
	ended    time.Time      // when it had gone out
}

// traceWake notes that c waits for an instance to be awake. The caller holds mu.
func (f *function) traceWake(c *call) {
	switch {
	case f.trace != nil:
	case c.trace != nil:
		f.trace, c.trace = c.trace, nil // the instance that had it is none any more
	default:
		client := api.TraceFrom(c.req.in.Header)
		t := &wakeTrace{f: f, parent: client.Span, began: c.req.begun, root: f.a.tracer.Root(f.name, client, api.PartActivator, c.req.begun)}
		t.open.Store(1)
		f.trace = t
	}
}

// calls is the span below which calls to instances are traced. The caller holds mu.
func (t *wakeTrace) calls() *waketrace.Span {
	if t == nil {
		return nil
	}
	return t.root
}

// begun notes that a call has begun. The caller holds mu.
func (t *wakeTrace) begun() {
	if t != nil {
		t.open.Add(1)
	}
}

// called ends the span of a call: after the requests that wait for its end have gone on.
func (t *wakeTrace) called(call *waketrace.Span, st api.InstanceStatus, err error, now time.Time) {
	if t == nil {
		return
	}
	call.DoneAt(now, err)
	call.Steps(st.Instance, st.StepsOf(call.Trace().Span), false)
	t.done()
}

// done ends the request or a call. The last one has the trace reported.
func (t *wakeTrace) done() {
	if t.open.Add(-1) > 0 {
		return
	}
	select {
	case t.f.a.woken <- t:
	default: // a record is for people: a request does not wait for it
	}
}

// wokenBy notes that a call of ours has woken an instance. The caller holds mu.
func (t *wakeTrace) wokenBy(id api.InstanceID) {
	if t != nil {
		t.woke = id
	}
}

// sawAwake notes that an instance is awake. The caller holds mu.
func (t *wakeTrace) sawAwake(now time.Time) {
	if t != nil && t.awake.IsZero() {
		t.awake = now
	}
}

// abandon ends it where no request waits any more. The caller holds mu.
func (t *wakeTrace) abandon() {
	if t != nil {
		t.root.Done(errLeft)
	}
}

var errLeft = errors.New("no request waits for it any more")

// goesTo notes which instance gets the request.
func (t *wakeTrace) goesTo(id api.InstanceID, now time.Time) {
	if t != nil {
		t.instance, t.picked = id, now
	}
}

// firstByte ends the request when the first byte of its answer has gone out.
func (t *wakeTrace) firstByte() {
	t.ended = time.Now()
	t.done()
}

// maxWoken is how many traces wait to be reported.
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
