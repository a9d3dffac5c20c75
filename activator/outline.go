package activator

import (
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// rise is what this activator sees of one wake: the outline of it, as times. It
// begins with the request that finds nobody awake. It is its function's, under mu,
// until a request that waited for it gets a slot, and that request's from then on. The call
// to the instance may end last of all, where the instance answers what went ahead first:
// it is waited for, and its end is the function's to note.
//
// A request that finds somebody awake has nothing to do with any of this.
type rise struct {
	f        *function
	trace    api.Trace // in the span that is the whole of it
	parent   string    // the client's span; empty: it sent none
	began    time.Time
	told     time.Time // when the autoscaler was told first; zero: it was not
	calls    []wakeCall
	awake    time.Time          // when the activator knew it; zero: somebody was awake already, and was avoided
	status   api.InstanceStatus // of the instance that got the request, when it got it
	picked   time.Time          // when the request got its slot
	sent     time.Time          // when it was last sent to an instance
	answered time.Time          // when the first byte of the answer was there
	ended    time.Time          // when it had gone out
	waits    bool               // to be told, for the end of a call; the function's, under mu
}

// wakeCall is one call that this activator made.
type wakeCall struct {
	instance     api.InstanceID
	span         string
	began, ended time.Time // ended is zero while it runs
	err          error
}

// newRise begins the outline of a wake for a request that came at began with the header h.
func newRise(f *function, h http.Header, began time.Time) *rise {
	r := &rise{f: f, trace: api.NewTrace(), began: began}
	if client := api.TraceFrom(h); !client.Zero() {
		r.parent, r.trace.ID, r.trace.Unsampled = client.Span, client.ID, client.Unsampled
	}
	return r
}

// outlined says that c waits for an instance to be awake. The caller holds mu.
func (f *function) outlined(c *call) {
	switch {
	case f.rise != nil:
	case c.rise != nil:
		f.rise, c.rise = c.rise, nil // the instance that had it is none any more
	default:
		f.rise = newRise(f, c.r.Header, c.begun)
	}
}

// callOf is the trace that the next call to an instance carries. The caller holds mu.
func (r *rise) callOf(id api.InstanceID) api.Trace {
	if r == nil {
		return api.Trace{}
	}
	return r.trace.Child(string(api.PartActivator), string(id), api.SpanWake, strconv.Itoa(len(r.calls)))
}

// noteCall notes that this call has begun. The caller holds mu.
func (r *rise) noteCall(id api.InstanceID, now time.Time) {
	if r != nil {
		r.calls = append(r.calls, wakeCall{instance: id, span: r.callOf(id).Span, began: now})
	}
}

// noteEnd ends a call in the outline, where it is still the function's. The caller holds mu.
func (r *rise) noteEnd(id api.InstanceID, err error, now time.Time) {
	if c := r.underWay(id); c != nil {
		c.ended, c.err = now, err
	}
}

// underWay is the call to an instance that has not ended; nil: there is none. The caller holds mu.
func (r *rise) underWay(id api.InstanceID) *wakeCall {
	if r == nil || len(r.calls) == 0 {
		return nil
	}
	if last := &r.calls[len(r.calls)-1]; last.instance == id && last.ended.IsZero() {
		return last
	}
	return nil
}

// noteAwake notes that an instance is awake. The caller holds mu.
func (r *rise) noteAwake(now time.Time) {
	if r != nil && r.awake.IsZero() {
		r.awake = now
	}
}

// hand passes the outline on to the request that gets the first slot. The caller holds mu.
func (f *function) hand(s *slot, now time.Time) {
	if f.rise == nil {
		return
	}
	s.rise, f.rise = f.rise, nil
	s.rise.goesTo(s.instance.Status(), now)
	if s.rise.underWay(f.waking) != nil {
		f.handed = s.rise
	}
}

// endCall notes the end of the wake under way, with what the instance said, in the outline that it
// belongs to, and returns the one that waited for that to be told; nil: none did. The caller holds mu.
func (f *function) endCall(id api.InstanceID, st api.InstanceStatus, err error, now time.Time) *rise {
	f.waking = ""
	f.rise.noteEnd(id, err, now)
	r := f.handed
	f.handed = nil
	if r == nil {
		return nil
	}
	r.noteEnd(id, err, now)
	if err == nil && r.status.Instance == id {
		r.status = st
	}
	if !r.waits {
		return nil
	}
	return r
}

// calling says whether a call of r is under way. Its end sends r on.
func (r *rise) calling() bool {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.waits = r.f.handed == r
	return r.waits
}

// goesTo notes which instance gets the request. The caller holds mu.
func (r *rise) goesTo(st api.InstanceStatus, now time.Time) {
	if r != nil {
		r.picked, r.status = now, st
	}
}

// handBack takes it back from a request that has left. The caller holds mu.
func (f *function) handBack(s slot) {
	if s.rise != nil && f.rise == nil && f.room.Len() > 0 {
		f.rise = s.rise
	}
}

// woken is called by the request's goroutine when the first byte of the answer has
// gone out. What follows is not its work.
func (c *call) woken() {
	r := c.ends
	c.rise, c.ends = nil, nil
	r.ended = time.Now()
	c.a.send(r)
}

// send sends r to who tells of it.
func (a *Activator) send(r *rise) {
	select {
	case a.woken <- r:
	default: // a record is for people: a request does not wait for it
	}
}

// maxWoken is how many outlines wait to be sent.
const maxWoken = 64

// tellWoken sends the outline of a wake, unless a call of it has not ended yet.
func (a *Activator) tellWoken(r *rise) {
	if r.calling() {
		return
	}
	o := r.outline(a.cfg.Name)
	a.deps.Emitter.Emit(api.NewEvent(api.EventWoken, "/activator/"+a.cfg.Name, o.Function, o))
	if a.deps.Traces != nil {
		a.deps.Traces(o)
	}
}

// outline is r as a record.
func (r *rise) outline(activator string) api.Outline {
	o := api.Outline{
		Function: r.f.name, Instance: r.status.Instance, Activator: activator,
		Trace: r.trace.ID, Root: r.trace.Span, Parent: r.parent, Unsampled: r.trace.Unsampled,
		Start: r.began, Total: r.ended.Sub(r.began),
	}
	awake := r.awake
	if awake.IsZero() || awake.After(r.picked) {
		awake = r.picked
	}
	span := func(name string, from, to time.Time) api.Span {
		s := api.Span{ID: api.SpanID(o.Trace, string(api.PartActivator), o.Root, name), Name: name, Part: api.PartActivator, After: from.Sub(r.began), Took: to.Sub(from)}
		o.Add(s)
		return s
	}
	hold := span(api.SpanHold, r.began, awake)
	if !r.told.IsZero() {
		o.Add(api.Span{ID: o.EventID(), Parent: hold.ID, Name: api.SpanEvent, Part: api.PartAutoscaler, After: r.told.Sub(r.began)})
	}
	for _, c := range r.calls {
		o.By = r.by(&o, c, hold, awake)
	}
	span(api.SpanDispatch, awake, r.sent)
	span(api.SpanFirstToken, r.sent, r.answered)
	return o
}

// by adds a call to o and says who woke the instance, as far as is known after it.
func (r *rise) by(o *api.Outline, c wakeCall, hold api.Span, awake time.Time) api.Part {
	if c.ended.IsZero() || c.ended.After(awake) { // its report, or the answer to what went ahead, came before its own
		c.ended = awake
	}
	s := api.Span{ID: c.span, Parent: hold.ID, Name: api.SpanWake, Part: api.PartActivator, After: c.began.Sub(r.began), Took: c.ended.Sub(c.began)}
	if c.instance != o.Instance {
		s.Who = c.instance
	}
	if c.err != nil {
		s.Note = c.err.Error()
	}
	o.Add(s)
	if c.err != nil || c.instance != o.Instance {
		return o.By
	}
	o.AddSteps(s, c.instance, r.status.StepsOf(c.span), false)
	return api.PartActivator
}
