package activator

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// delivery is what went to instances for one request.
type delivery struct {
	attempts    int            // times that it was sent
	given       int            // of these, times that a runtime may have seen it
	resumed     int            // of these, times that the answer went on where that of another instance was cut
	moved       int            // of these, times that its instance gave way
	before      forward.Timing // when the last answer was cut that goes on
	last        string         // the code of the last attempt that did not answer it; empty: none
	speculative *speculative   // nil: nothing was sent to an instance that is being woken
}

// try sends the request to one instance and waits for the first bytes of its answer.
func (c *call) try(s *slot) (*forward.Answer, error) {
	c.sent.attempts++
	c.reply.comment.dispatched()
	sent := time.Now()
	stop := c.limit(s.limits.first, beganTooLate)
	answer, done, err := c.sent.speculated(s.instance.ID)
	if !done {
		c.f.nameNext(c, s)
		answer, err = c.a.client.Send(c.ctx, *c.attempt(s.base, s.limits))
		c.f.moveSlot(c, s)
	}
	stop()
	c.reply.timing.First = time.Since(sent)
	if c.trace != nil {
		c.trace.sent, c.trace.answered = sent, sent.Add(c.reply.timing.First)
	}
	return answer, err
}

// mostNext is how many instances a gateway is told besides the one that was chosen.
const mostNext = 2

// nameNext tells the gateway that passes c on where it may go instead of the instance of s.
func (f *function) nameNext(c *call, s *slot) {
	if c.req.via == nil {
		return
	}
	c.req.via.Next, c.req.via.Served = nil, ""
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.set.Next(s.instance, mostNext, time.Now(), c.req.wants(), of(f.sees(), c.req.peer.Client)) {
		c.req.via.Next = append(c.req.via.Next, i.Base().Host)
	}
}

// moveSlot moves s to the instance that has answered c, where the gateway that passes it on says which.
func (f *function) moveSlot(c *call, s *slot) {
	if c.req.via == nil || c.req.via.Served == "" || c.req.via.Served == s.base.Host {
		return
	}
	now := time.Now()
	f.mu.Lock()
	i := f.set.Move(s.instance, c.req.via.Served, now, c.req.wants())
	if i != nil {
		s.instance, s.base = i, i.Base()
		f.callAgain(f.set.NextTry(now), now)
	}
	f.mu.Unlock()
	if i == nil {
		c.a.log.Warn("the gateway sent a request to an endpoint that is no instance: are the pool's targetPorts those of the functions?",
			"request", c.req.id, "function", f.name, "instance", s.instance.ID, "chosen", s.base.Host, "endpoint", c.req.via.Served)
		return
	}
	c.sent.last = api.CodeUnhealthy
	c.a.picks.add(c, s)
	f.dispatch()
}

// attempt is what is sent to the instance at base.
func (c *call) attempt(base *url.URL, l limits) *forward.Call {
	attempt := &forward.Call{In: c.req.in, Body: c.req.body, ID: c.req.id, Base: base, Kind: c.req.style, Usage: &c.reply.usage, MaxEvent: c.a.cfg.MaxEvent, Memory: c.req.body,
		Asks:   !c.req.plain && c.req.via == nil, // else its answer is passed on as it comes
		Counts: c.atOnce && c.req.in.Header[control.HeaderUsage] != nil,
		Plain:  c.req.plain, Tenant: c.req.peer.Tenant(), Models: c.models(), Trusted: c.req.peer.Trusted, Credentials: l.credentials && !c.holder.keyed()}
	switch {
	case !l.resumes:
		c.reply.handled = l.handled
	case c.atOnce:
		attempt.Passed = c.req.in.Header.Get(control.HeaderState)
		c.reply.passes = attempt.Passed != ""
	case c.resumable():
		if c.reply.state == nil {
			c.reply.state = &relay.State{}
		}
		attempt.State = c.reply.state
	case l.moves && c.restartable():
		attempt.Movable = true
	}
	if idle := l.idle; idle > 0 {
		attempt.Idle, attempt.Paused = idle, func() { c.tooLate(idle, pausedTooLong) }
	}
	return attempt
}

// speculative is a request that went to an instance right behind the call that wakes it, so
// that the instance takes it in the moment that it is awake: the answer to the wake and the request
// after it need not cross first. The request waits in its queue all the same, and
// nothing else changes:
//
//  1. The instance keeps it until its runtime takes requests, and keeps what that answers back until the
//     canary has been answered as before; or it refuses it.
//  2. Where it begins to answer, the request gets a slot of this instance there and then, in whatever
//     state we think that it is: it may be on its way to sleep again, and waits for the end of this request.
//  3. A refusal counts for nothing once the request has got a slot: it is sent, as if it had not been before.
//  4. Where it gets a slot of another instance, is refused, or its client leaves, what
//     was sent is cut off, which ends it there too.
type speculative struct {
	instance api.InstanceID
	cut      context.CancelFunc
	// done is closed by the sending goroutine, once, when what follows is written.
	done   chan struct{}
	answer *forward.Answer
	err    error
}

// speculate sends c, which waits as e, behind the wake of an instance, which has begun.
func (c *call) speculate(to *route.Instance, e *hold.Entry[*slot], attempt *forward.Call) {
	ctx, cut := context.WithCancel(c.ctx)
	s := &speculative{instance: to.ID, cut: cut, done: make(chan struct{})}
	attempt.Wait = true
	c.sent.speculative = s
	client, f := c.a.client, c.f // it changes only after cutOff
	go func() {
		defer close(s.done)
		if s.answer, s.err = client.Send(ctx, *attempt); s.err == nil {
			f.answered(e, to)
		}
	}()
}

// answered gives e, where it waits, a slot of the instance that answers what was sent to it.
func (f *function) answered(e *hold.Entry[*slot], i *route.Instance) {
	f.mu.Lock()
	waits := f.queue.Leave(e)
	var s *slot
	if waits { // else it has a slot, or has left
		f.set.Reserve(i, e.Want.Adapter)
		f.set.Sent(i, e.Want, time.Now())
		s = f.hand(i, api.Choice{By: api.ByWake, Running: i.Running() - 1}, e)
	}
	f.mu.Unlock()
	if waits {
		f.offer(e, s)
		f.meter.Changed()
	}
}

// cutOff ends what was sent speculatively, where there is anything, and waits until it has ended.
func (d *delivery) cutOff() {
	s := d.speculative
	if s == nil {
		return
	}
	d.speculative = nil
	s.cut()
	if <-s.done; s.answer != nil {
		s.answer.Close()
	}
}

// speculated is the answer to what was sent speculatively to an instance; done is false if the
// request is still to be sent.
func (d *delivery) speculated(to api.InstanceID) (answer *forward.Answer, done bool, err error) {
	s := d.speculative
	if s == nil || s.instance != to {
		d.cutOff()
		return nil, false, nil
	}
	<-s.done // it ends with the context of the call at the latest
	d.speculative = nil
	if s.err == nil {
		return s.answer, true, nil // the end of the call's context ends its own
	}
	s.cut()
	var failed *forward.Failure
	if errors.As(s.err, &failed) && !failed.Given {
		return nil, false, nil
	}
	return nil, true, s.err
}
