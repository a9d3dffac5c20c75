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
//  4. Adapters that were loaded before the sleep are asked too, when they have been restored: a server can lose one and answer
//     for it with the model itself. That they differ has the same consequences, and nobody gets in before.
//  5. A fresh start has read the weights anew: what is known is forgotten. A
//     sidecar, whose start is not ours, is judged by what it said before, until
//     it is seen to have gone.

// canaryTimeout bounds the canary before a sleep.
const canaryTimeout = 10 * time.Second

// errChanged is the outcome of a wake after which the runtime answers otherwise.
var errChanged = errors.New("the model does not answer as it did before it slept")

// adapter is one that the runtime has loaded. Another of its name is known since another time.
type adapter struct {
	name  api.ModelName
	since time.Time
}

// answers are what adapters should answer; nil: not asked yet.
type answers map[adapter]*runtime.Answer

// learnAll asks for what is compared after the sleep and is not known yet. Where the model itself is not compared its adapters are not.
func (s *Supervisor) learnAll(ctx context.Context, op *operation, launch runtime.Launch) {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	if op.canary == nil {
		op.canary = s.learn(ctx, launch, "")
	}
	known := op.adapters
	op.adapters = answers{}
	if op.canary == nil || !op.canary.Known() {
		return
	}
	for name, since := range s.cfg.Adapters() {
		a := adapter{name, since}
		if op.adapters[a] = known[a]; op.adapters[a] == nil {
			op.adapters[a] = s.learn(ctx, launch, name)
		}
	}
}

// learn asks the model, or one of its adapters; nil: the next sleep asks again.
func (s *Supervisor) learn(ctx context.Context, launch runtime.Launch, adapter api.ModelName) *runtime.Answer {
	answer, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint, adapter)
	if err == nil && answer.Known() {
		var again runtime.Answer
		again, err = s.cfg.Runtime.Canary(ctx, launch.Endpoint, adapter)
		if err == nil && !answer.Agrees(again) {
			s.cfg.Logger.Info("the model answers the canary differently from one time to the next: nothing is compared after its sleeps", "adapter", adapter, "first", answer, "then", again)
			answer = runtime.Answer{}
		}
	}
	if err != nil {
		s.cfg.Logger.Info("the canary has no answer before the sleep: nothing is compared after it", "adapter", adapter, "error", err)
		return nil
	}
	return &answer
}

// compareAdapters says whether the adapters that are loaded, and were before, answer the canary as they did.
func (s *Supervisor) compareAdapters(ctx context.Context, op *operation, launch runtime.Launch) error {
	loaded := s.cfg.Adapters()
	for a, want := range op.adapters {
		if want == nil || !want.Known() || !loaded[a.name].Equal(a.since) {
			continue
		}
		got, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint, a.name)
		if err == nil {
			err = s.compare(ctx, op, launch, a.name, want, got)
		}
		if err != nil {
			return fmt.Errorf("adapter %s: %w", a.name, err)
		}
	}
	return nil
}

// compare says whether the model, or one of its adapters, answers the canary as it should; got is what it
// has just answered.
func (s *Supervisor) compare(ctx context.Context, op *operation, launch runtime.Launch, adapter api.ModelName, want *runtime.Answer, got runtime.Answer) error {
	if want == nil || !want.Known() || !got.Known() || want.Agrees(got) {
		return nil
	}
	if err := s.gate.clear(ctx, refusal(api.Unhealthy, true)); err != nil {
		return err
	}
	again, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint, adapter)
	switch {
	case err != nil:
		return err
	case want.Agrees(again):
		s.cfg.Logger.Warn("the model answered the canary wrongly once", "adapter", adapter, "before the sleep", *want, "after", got)
		return nil
	}
	op.mismatch = true
	changed := fmt.Errorf("%w: to the canary it said %s then and says %s now", errChanged, *want, again)
	s.cfg.Logger.Warn("the weights are read anew", "reason", changed)
	if err := s.cfg.Runtime.Reload(ctx, launch.Endpoint); err != nil {
		s.cfg.Logger.Debug("the weights can't be read anew in place", "error", err)
		return changed
	}
	if again, err = s.cfg.Runtime.Canary(ctx, launch.Endpoint, adapter); err == nil && want.Agrees(again) {
		return nil
	}
	return changed
}

// awaitSuspect waits for a sidecar that answered otherwise after its sleep: until
// it answers as before, or has been started again, which is seen by nobody
// listening for a moment.
func (s *Supervisor) awaitSuspect(ctx context.Context, op *operation, launch runtime.Launch) error {
	if err := s.cfg.Runtime.Probe(ctx, launch.Endpoint); refusedConnection(err) {
		op.canary, op.adapters = nil, nil
	}
	if err := s.awaitStart(ctx, op, launch); err != nil || op.canary == nil {
		return err
	}
	got, err := s.cfg.Runtime.Canary(ctx, launch.Endpoint, "")
	if err == nil {
		err = s.compare(ctx, op, launch, "", op.canary, got)
	}
	if errors.Is(err, errChanged) {
		err = fmt.Errorf("%w; it is a sidecar, which is not ours to start again: restart its container", err)
	}
	return err
}

// canary is what is known of a runtime's answer.
type canary struct {
	answer     *runtime.Answer // what the runtime should answer after a sleep; nil: not asked yet, unknown: nothing is compared
	adapters   answers         // the same for adapters
	mismatches int             // wakes after which it did not
	suspect    bool            // a sidecar that did not: the canary decides whether it is awake
}

// forget forgets the answer: the weights are read anew.
func (c *canary) forget() { c.answer, c.adapters = nil, nil }

// judged notes what an operation has found out.
func (c *canary) judged(op *operation, sidecar bool, err error) {
	c.answer, c.adapters = op.canary, op.adapters
	if op.mismatch && op.kind == opWake {
		c.mismatches++
		c.suspect = sidecar && err != nil
	} else if op.kind == opStart && err == nil {
		c.suspect = false
	}
}
