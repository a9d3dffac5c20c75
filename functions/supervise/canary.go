package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// The canary is a fixed prompt that a healthy model answers the same before and after a sleep. With damaged weights a server answers
// nonsense with status 200, which no other probe detects.
//
//  1. Before the first sleep of a process, without requests, the runtime is asked twice. If the answers differ, nothing is ever compared.
//  2. A wake ends with the canary. A request that came with the wake may run beside it, its answer held back. If the canary's differs,
//     such requests go back to their senders, and it is asked once more, alone.
//  3. If it differs again, the weights are reloaded, in place if possible, else by a restart.
//  4. Adapters loaded before the sleep are asked too, once restored: a server can lose one and answer with the base model.
//  5. A fresh start discards the known answers. A sidecar's are kept until it was seen to have gone.

const canaryTimeout = 10 * time.Second

var errChanged = errors.New("the model does not answer as it did before it slept")

// adapter is a loaded adapter; since tells it from an earlier one of the same name.
type adapter struct {
	name  api.ModelName
	since time.Time
}

// answers has nil for an adapter that was not asked yet.
type answers map[adapter]*runtime.Answer

func (o *operation) learnAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	if o.canary == nil {
		o.canary = o.learn(ctx, "")
	}
	known := o.adapters
	o.adapters = answers{}
	if o.canary == nil || !o.canary.Known() {
		return
	}
	for name, since := range o.cfg.Adapters() {
		a := adapter{name, since}
		if o.adapters[a] = known[a]; o.adapters[a] == nil {
			o.adapters[a] = o.learn(ctx, name)
		}
	}
}

func (o *operation) askCanary(ctx context.Context, adapter api.ModelName) (runtime.Answer, error) {
	return o.cfg.Runtime.Canary(ctx, o.launch.Endpoint, adapter)
}

// learn returns nil if the next sleep must ask again.
func (o *operation) learn(ctx context.Context, adapter api.ModelName) *runtime.Answer {
	answer, err := o.askCanary(ctx, adapter)
	if err == nil && answer.Known() {
		var again runtime.Answer
		again, err = o.askCanary(ctx, adapter)
		if err == nil && !answer.Agrees(again) {
			o.cfg.Logger.Info("canary answers differ without a sleep: canary is off", "adapter", adapter, "first", answer, "then", again)
			answer = runtime.Answer{}
		}
	}
	if err != nil {
		o.cfg.Logger.Info("canary failed before the sleep: no comparison after it", "adapter", adapter, "error", err)
		return nil
	}
	return &answer
}

func (o *operation) compareAdapters(ctx context.Context) error {
	loaded := o.cfg.Adapters()
	for a, want := range o.adapters {
		if want == nil || !want.Known() || !loaded[a.name].Equal(a.since) {
			continue
		}
		got, err := o.askCanary(ctx, a.name)
		if err == nil {
			err = o.compare(ctx, a.name, want, got)
		}
		if err != nil {
			return fmt.Errorf("adapter %s: %w", a.name, err)
		}
	}
	return nil
}

// compare asks once more if got is not the wanted answer, and then reloads the weights. It returns an error unless that helps.
func (o *operation) compare(ctx context.Context, adapter api.ModelName, want *runtime.Answer, got runtime.Answer) error {
	if want == nil || !want.Known() || !got.Known() || want.Agrees(got) {
		return nil
	}
	if err := o.gate.clear(ctx, refusal(api.Unhealthy, true)); err != nil {
		return err
	}
	again, err := o.askCanary(ctx, adapter)
	switch {
	case err != nil:
		return err
	case want.Agrees(again):
		o.cfg.Logger.Warn("canary mismatch after the wake: asking again", "adapter", adapter, "before the sleep", *want, "after", got)
		return nil
	}
	o.mismatch = true
	changed := fmt.Errorf("%w: to the canary it said %s then and says %s now", errChanged, *want, again)
	o.cfg.Logger.Warn("reloading the weights", "reason", changed)
	if err := o.cfg.Runtime.Reload(ctx, o.launch.Endpoint); err != nil {
		o.cfg.Logger.Debug("reloading the weights in place failed", "error", err)
		return changed
	}
	if again, err = o.askCanary(ctx, adapter); err == nil && want.Agrees(again) {
		return nil
	}
	return changed
}

// awaitSuspect waits until a sidecar answers as before its sleep or has restarted, which a refused connection shows.
func (o *operation) awaitSuspect(ctx context.Context) error {
	if err := o.cfg.Runtime.Probe(ctx, o.launch.Endpoint); refusedConnection(err) {
		o.canary, o.adapters = nil, nil
	}
	if err := o.awaitStart(ctx); err != nil || o.canary == nil {
		return err
	}
	got, err := o.askCanary(ctx, "")
	if err == nil {
		err = o.compare(ctx, "", o.canary, got)
	}
	if errors.Is(err, errChanged) {
		err = fmt.Errorf("%w; it is a sidecar, which is not ours to start again: restart its container", err)
	}
	return err
}

type canary struct {
	answer     *runtime.Answer // nil: not asked yet; unknown: nothing is compared
	adapters   answers
	mismatches int
	suspect    bool // a sidecar with a different answer: the canary decides whether it is awake
}

func (c *canary) forget() { c.answer, c.adapters = nil, nil }

func (c *canary) judged(op *operation, sidecar bool, err error) {
	c.answer, c.adapters = op.canary, op.adapters
	if op.mismatch && op.kind == opWake {
		c.mismatches++
		c.suspect = sidecar && err != nil
	} else if op.kind == opStart && err == nil {
		c.suspect = false
	}
}

// validation is the time between a wake and the proof that the runtime answers as before.
type validation struct {
	base string
	// closed after refused is set
	done    chan struct{}
	refused *api.Error
	cuts    []context.CancelCauseFunc // of the admitted requests; guarded by the gate's lock
}

// validated blocks until the outcome is known (nil, or why the answer must be thrown away), or inside ends. A refusal ends inside too,
// and takes precedence.
func (t *validation) validated(inside context.Context) *api.Error {
	select {
	case <-t.done:
		if t.refused != nil {
			<-inside.Done() // endValidation cuts it a moment later
		}
		return t.refused
	case <-inside.Done():
	}
	select {
	case <-t.done:
		return t.refused
	default:
		return nil
	}
}

func (g *Gate) try(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base != "" || g.validation != nil {
		return
	}
	g.validation = &validation{base: e.URL(""), done: make(chan struct{})}
	g.last = g.validation.base
	g.turn()
}

// endValidation validates the runtime if refused is nil. g.mu is held.
func (g *Gate) endValidation(refused *api.Error) {
	t := g.validation
	if t == nil {
		return
	}
	g.validation = nil
	t.refused = refused
	close(t.done)
	if refused != nil {
		for _, cut := range t.cuts {
			cut(refused)
		}
	}
}

func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endValidation(nil)
}

// clear ends a validation against the runtime, and blocks until all its requests have left.
func (g *Gate) clear(ctx context.Context, why *api.Error) error {
	g.mu.Lock()
	idle := g.idle
	tried := g.validation != nil
	g.endValidation(why)
	g.mu.Unlock()
	if !tried {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
