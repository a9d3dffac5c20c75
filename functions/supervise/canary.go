package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// The canary is a fixed prompt that a healthy model answers the same before and
// after a sleep. Weights that did not come back as they were make a server that
// answers quickly, with status 200, and in nonsense: no probe sees that.
//
//  1. Before the first sleep of a process, when nothing runs any more, the
//     runtime is asked twice. Where it answers differently it is not
//     deterministic, and nothing is ever compared; there is a line in the log.
//  2. A wake ends with the canary: it is the probe, so it costs no call. A request
//     that came behind the wake may run beside it, speculatively: its answer is kept back until
//     the canary's is there. Where that is different, what ran speculatively is cut off and goes
//     back to where it came from, and the canary is asked once more, alone.
//  3. Where it stays different, the weights are read anew, in place if the runtime
//     can; where that does not help, the wake has failed and the runtime is started
//     again. Who waits for it waits on: it is never awake before.
//  4. A fresh start has read the weights anew: what is known is forgotten. A
//     sidecar, whose start is not ours, is judged by what it said before, until
//     it is seen to have gone.

// canaryTimeout bounds the canary before a sleep.
const canaryTimeout = 10 * time.Second

// errChanged is the outcome of a wake after which the runtime answers otherwise.
var errChanged = errors.New("the model does not answer as it did before it slept")

// learn asks for what is compared after the sleep; nil: the next sleep asks again.
func (s *Supervisor) learn(ctx context.Context, launch runtime.Launch) *runtime.Answer {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	answer, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint)
	if err == nil && answer.Known() {
		var again runtime.Answer
		again, err = s.cfg.Runtime.Canary(ctx, launch.Endpoint)
		if err == nil && !answer.Agrees(again) {
			s.cfg.Logger.Info("the model answers the canary differently from one time to the next: nothing is compared after its sleeps", "first", answer, "then", again)
			answer = runtime.Answer{}
		}
	}
	if err != nil {
		s.cfg.Logger.Info("the canary has no answer before the sleep: nothing is compared after it", "error", err)
		return nil
	}
	return &answer
}

// compare says whether the runtime answers the canary as before; got is what it
// has just answered.
func (s *Supervisor) compare(ctx context.Context, op *operation, launch runtime.Launch, got runtime.Answer) error {
	if op.canary == nil || !op.canary.Known() || !got.Known() || op.canary.Agrees(got) {
		return nil
	}
	if err := s.gate.clear(ctx, refusal(api.Unhealthy, true)); err != nil {
		return err
	}
	again, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint)
	switch {
	case err != nil:
		return err
	case op.canary.Agrees(again):
		s.cfg.Logger.Warn("the model answered the canary wrongly once", "before the sleep", *op.canary, "after", got)
		return nil
	}
	op.mismatch = true
	changed := fmt.Errorf("%w: to the canary it said %s then and says %s now", errChanged, *op.canary, again)
	s.cfg.Logger.Warn("the weights are read anew", "reason", changed)
	if err := s.cfg.Runtime.Reload(ctx, launch.Endpoint); err != nil {
		s.cfg.Logger.Debug("the weights can't be read anew in place", "error", err)
		return changed
	}
	if again, err = s.cfg.Runtime.Canary(ctx, launch.Endpoint); err == nil && op.canary.Agrees(again) {
		return nil
	}
	return changed
}

// awaitSuspect waits for a sidecar that answered otherwise after its sleep: until
// it answers as before, or has been started again, which is seen by nobody
// listening for a moment.
func (s *Supervisor) awaitSuspect(ctx context.Context, op *operation, launch runtime.Launch) error {
	if err := s.cfg.Runtime.Probe(ctx, launch.Endpoint); refusedConnection(err) {
		op.canary = nil
	}
	if err := s.awaitStart(ctx, op, launch); err != nil || op.canary == nil {
		return err
	}
	got, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint)
	if err == nil {
		err = s.compare(ctx, op, launch, got)
	}
	if errors.Is(err, errChanged) {
		err = fmt.Errorf("%w; it is a sidecar, which is not ours to start again: restart its container", err)
	}
	return err
}

// canary is what is known of a runtime's answer.
type canary struct {
	answer     *runtime.Answer // what the runtime should answer after a sleep; nil: not asked yet, unknown: nothing is compared
	mismatches int             // wakes after which it did not
	suspect    bool            // a sidecar that did not: the canary decides whether it is awake
}

// forget forgets the answer: the weights are read anew.
func (c *canary) forget() { c.answer = nil }

// judged notes what an operation has found out.
func (c *canary) judged(op *operation, sidecar bool, err error) {
	c.answer = op.canary
	if op.mismatch && op.kind == opWake {
		c.mismatches++
		c.suspect = sidecar && err != nil
	} else if op.kind == opStart && err == nil {
		c.suspect = false
	}
}
