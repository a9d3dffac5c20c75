package activator

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
)

// ahead is a request that went to an instance right behind the call that wakes it, so
// that the instance takes it in the moment that it is awake: the answer to the wake and the request
// after it need not cross first. The request waits in its room all the same, and
// nothing else changes:
//
//  1. The instance keeps it until its canary has answered as before, or refuses it.
//  2. Its answer is looked at once the request has got a slot of this instance. A
//     refusal counts for nothing then: the request is sent, as if it had not been before.
//  3. Where it gets a slot of another instance, is refused, or its client leaves, what
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
func (c *call) sendAhead(to api.InstanceID, attempt *forward.Call) {
	ctx, cut := context.WithCancel(c.ctx)
	a := &ahead{instance: to, cut: cut, done: make(chan struct{})}
	attempt.Wait = true
	c.ahead = a
	go func() {
		defer close(a.done)
		a.answer, a.err = c.a.client.Send(ctx, *attempt)
	}()
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
