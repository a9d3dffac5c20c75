package activator

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// ahead is a request that went to an instance right behind the call that wakes it, so
// that the instance takes it in the moment that it is awake: the answer to the wake and the request
// after it need not cross first. The request waits in its room all the same, and
// nothing else changes:
//
//  1. The instance keeps it until its runtime takes requests, and keeps what that answers back until the
//     canary has been answered as before; or it refuses it.
//  2. Where it begins to answer, the request gets a slot of this instance there and then, in whatever
//     state we think that it is: it may be on its way to sleep again, and waits for the end of this request.
//  3. A refusal counts for nothing once the request has got a slot: it is sent, as if it had not been before.
//  4. Where it gets a slot of another instance, is refused, or its client leaves, what
//     went ahead is cut off, which ends it there too.
type ahead struct {
	instance api.InstanceID
	cut      context.CancelFunc
	// done is closed by the sending goroutine, once, when what follows is written.
	done   chan struct{}
	answer *forward.Answer
	err    error
}

// sendAhead sends c behind the wake of an instance, which has begun.
func (c *call) sendAhead(to *route.Instance, attempt *forward.Call) {
	ctx, cut := context.WithCancel(c.ctx)
	a := &ahead{instance: to.ID, cut: cut, done: make(chan struct{})}
	attempt.Wait = true
	c.ahead = a
	f, e := c.f, c.entry // they change only after cutOff
	go func() {
		defer close(a.done)
		if a.answer, a.err = c.a.client.Send(ctx, *attempt); a.err == nil {
			f.answered(e, to)
		}
	}()
}

// answered gives e, where it waits, a slot of the instance that answers what went ahead.
func (f *function) answered(e *hold.Entry[slot], i *route.Instance) {
	f.mu.Lock()
	waits := f.room.Leave(e)
	if waits { // else it has a slot, or has left
		f.set.Reserve(i)
		f.offer(e, i)
	}
	f.mu.Unlock()
	if waits {
		f.meter.Changed()
	}
}

// cutOff ends what went ahead, where there is anything, and waits until it has ended.
func (c *call) cutOff() {
	a := c.ahead
	if a == nil {
		return
	}
	c.ahead = nil
	a.cut()
	if <-a.done; a.answer != nil {
		a.answer.Close()
	}
}

// went is the answer to what went ahead to the instance of s; done is false if the
// request is still to be sent.
func (c *call) went(s slot) (answer *forward.Answer, done bool, err error) {
	a := c.ahead
	if a == nil || a.instance != s.instance.ID {
		c.cutOff()
		return nil, false, nil
	}
	<-a.done // it ends with the context of c at the latest
	c.ahead = nil
	if a.err == nil {
		return a.answer, true, nil // the end of c.ctx ends ctx
	}
	a.cut()
	var failed *forward.Failure
	if errors.As(a.err, &failed) && !failed.Given {
		return nil, false, nil
	}
	return nil, true, a.err
}
