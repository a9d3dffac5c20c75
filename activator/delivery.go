package activator

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// delivery records the attempts to send one request to instances.
type delivery struct {
	attempts    int                      // the number of attempts
	given       int                      // of these, the attempts that a runtime may have seen
	resumed     int                      // of these, the attempts that resumed an answer that was cut
	moved       int                      // of these, the attempts whose instance gave way
	before      metrics.Timing           // the timing when the answer that is being resumed was last cut
	last        string                   // the error code of the last failed attempt; empty: none
	queued      atomic.Bool              // it waits for its turn at an instance
	upgraded    atomic.Pointer[upgraded] // its connection, once an instance has upgraded it
	body        relay.Body               // sent in place of the client's body; nil: that is sent
	pick        int                      // the place of its last pick in the ring
	speculative *speculative             // nil: nothing was sent to an instance that is being woken
}

// try sends the request to one instance and waits for the first bytes of its answer. last is the limit of the whole.
func (c *call) try(s *queue.Slot, last timeout) (*forward.Answer, error) {
	c.sent.attempts++
	c.reply.comment.dispatched()
	sent := time.Now()
	first := c.limit(s.Spec.FirstByteTimeout, beganTooLate)
	answer, done, err := c.sent.speculated(s.Instance)
	if !done {
		c.nameAlternatives(s)
		answer, err = c.sendInTurn(s, first, last)
		c.followGateway(s)
	}
	first.stop()
	c.reply.timing.First = time.Since(sent)
	c.want.Sent(sent, sent.Add(c.reply.timing.First))
	if err == nil {
		c.waitedThere(s, answer.Waited())
	}
	return answer, err
}

// sendInTurn sends the request to the instance of s, where it may wait for its turn.
func (c *call) sendInTurn(s *queue.Slot, first, last timeout) (*forward.Answer, error) {
	attempt, ctx := c.attempt(s.Target), c.ctx
	// A background request that finds no free slot waits behind all others. Without others nothing is to be put in order.
	if (!c.want.FreeSlot || c.background) && (c.a.deps.Others != nil || s.Waits) {
		attempt.Turn = s.Turn()
		ctx = c.whileQueued(first, last)
	}
	if c.req.via != nil {
		attempt.Turn = c.quietTurn(s)
	}
	if c.req.plain { // as in Knative, its header begins the answer
		attempt.Answered = first.stop
	}
	return c.a.client.Send(ctx, *attempt)
}

// quietTurn is the place of a request at the instance of s, if a gateway or a client that may not understand interim
// answers would get them. Without others, nothing is to be put in order; and one that must be served at once has none.
func (c *call) quietTurn(s *queue.Slot) (t control.Turn) {
	if c.a.deps.Others != nil && !s.Waits && !c.atOnce {
		t = s.Turn()
		t.Quiet = true
	}
	return t
}

// waitedThere counts the time in which the request waited for its turn at the instance as time in the queue.
func (c *call) waitedThere(s *queue.Slot, d time.Duration) {
	if d <= 0 {
		return
	}
	s.Waited(d)
	t := &c.reply.timing
	t.Hold, t.Queue, t.First = t.Hold+d, t.Queue+d, max(t.First-d, 0)
	c.tellTurn(t.Hold.Milliseconds() + 1)
}

// maxAlternatives is how many alternative instances a gateway is told.
const maxAlternatives = 2

// nameAlternatives tells the gateway that forwards c which instances it may use instead of the instance of s.
func (c *call) nameAlternatives(s *queue.Slot) {
	if c.req.via != nil {
		c.req.via.Next, c.req.via.Served = s.Alternatives(maxAlternatives), ""
	}
}

// followGateway moves s to the instance that answered c, if the forwarding gateway named it.
func (c *call) followGateway(s *queue.Slot) {
	if c.req.via == nil || c.req.via.Served == "" || c.req.via.Served == s.Base.Host {
		return
	}
	if !s.Move(c.req.via.Served) {
		c.a.log.Warn("the gateway sent a request to an endpoint that is no instance: are the pool's targetPorts those of the functions?",
			"request", c.req.id, "function", c.f.Name, "instance", s.Instance, "chosen", s.Base.Host, "endpoint", c.req.via.Served)
		return
	}
	c.sent.last = api.CodeUnhealthy
	c.a.picks.add(c, s)
}

// attempt returns the call to an instance.
func (c *call) attempt(to queue.Target) *forward.Call {
	spec := to.Spec
	attempt := &forward.Call{In: c.req.in, Body: c.req.body, ID: c.req.id, Base: to.Base, Kind: c.req.style, Usage: &c.reply.usage, Memory: c.req.body,
		Instead: c.sent.body,
		Asks:    !c.req.plain && c.req.via == nil, // otherwise its answer is passed on as it comes
		Counts:  c.atOnce && c.req.in.Header[control.HeaderUsage] != nil,
		Plain:   c.req.plain, Tenant: c.req.peer.Tenant(), Models: c.models(), Trusted: c.req.peer.Trusted, Credentials: spec.PassCredentials && !c.holder.keyed()}
	switch {
	case !spec.Resumes():
		c.reply.handled = spec.TellsState() && len(spec.Handler) > 0
	case c.atOnce:
		attempt.Passed = c.req.in.Header.Get(control.HeaderState)
		c.reply.passes = attempt.Passed != ""
	case c.resumable():
		if c.reply.state == nil {
			c.reply.state = &relay.State{}
		}
		attempt.State = c.reply.state
	case spec.Moves() && c.restartable():
		attempt.Movable = true
	}
	if idle := spec.IdleTimeout; idle > 0 {
		attempt.Idle, attempt.Paused = idle, func() { c.tooLate(idle, pausedTooLong) }
	}
	return attempt
}

// speculative is a request that was sent to an instance right behind the call that wakes it. The instance handles it
// as soon as it is awake, without a round trip in between. Meanwhile the request waits in its queue as usual:
//
//  1. The instance holds it until its runtime accepts requests, and holds the answer until the canary has passed; or
//     it refuses it.
//  2. When it begins to answer, the request gets a slot of this instance immediately, in whatever state we believe
//     the instance to be. It may be about to sleep again, and then waits for the end of this request.
//  3. If it refuses after the request got a slot, the request is sent as if for the first time.
//  4. If the request gets a slot of another instance, is refused, or its client leaves, the speculative call is
//     cancelled, which ends it at the instance too.
type speculative struct {
	instance api.InstanceID
	cut      context.CancelFunc
	// done is closed by the sending goroutine, once, after the fields below are set.
	done   chan struct{}
	answer *forward.Answer
	err    error
}

// sendAhead sends c, which waits, right behind the call that wakes an instance.
func (c *call) sendAhead(to queue.Target, answered func()) {
	ctx, cut := context.WithCancel(c.ctx)
	s := &speculative{instance: to.Instance, cut: cut, done: make(chan struct{})}
	attempt := c.attempt(to)
	attempt.Wait = true
	c.sent.speculative = s
	client := c.a.client
	go func() {
		defer close(s.done)
		if s.answer, s.err = client.Send(ctx, *attempt); s.err == nil {
			answered()
		}
	}()
}

// cutOff cancels the speculative call, if there is one, and waits until it has ended.
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

// speculated returns the answer to the speculative call to an instance; done is false if the request still has to be
// sent.
func (d *delivery) speculated(to api.InstanceID) (answer *forward.Answer, done bool, err error) {
	s := d.speculative
	if s == nil || s.instance != to {
		d.cutOff()
		return nil, false, nil
	}
	<-s.done // it ends with the context of the call at the latest
	d.speculative = nil
	if s.err == nil {
		return s.answer, true, nil // the end of the call's context ends ctx too
	}
	s.cut()
	var failed *forward.Failure
	if errors.As(s.err, &failed) && !failed.Given {
		return nil, false, nil
	}
	return nil, true, s.err
}
