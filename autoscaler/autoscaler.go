package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/bell"
)

// New returns an autoscaler and starts nothing. emitter and registry may be nil.
func New(cfg Config, fx Effects, emitter api.Emitter, log *slog.Logger, registry prometheus.Registerer) (*Autoscaler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("autoscaler: %w", err)
	}
	if emitter == nil {
		emitter = api.EmitterFunc(func(api.Event) {})
	}
	a := &Autoscaler{loop: &loop{
		cfg: cfg.withDefaults(), emitter: emitter, log: log,
		box:       mailbox{Bell: bell.New(), closed: make(chan struct{})},
		functions: make(map[api.FunctionName]*function),
		instances: make(map[api.InstanceID]*instance),
		clock:     newClock(),
		shares:    make(map[api.InstanceID]float64),
	}}
	a.calls = &calls{loop: a.loop, fx: fx, epochs: decide.Epochs{Term: cfg.Term}, counter: make(map[string]int), under: make(map[uint64]*call)}
	a.usage, a.cfg.Usage = usage.New(time.Now(), cfg.Usage), nil
	a.usage.SetDevices(time.Now(), a.cfg.Devices)
	a.history = NewHistory(time.Now())
	a.history.SetDevices(time.Now(), a.cfg.Devices)
	a.topology = decide.NewTopology(slices.Clone(a.cfg.Devices))
	a.decide, a.cfg.Devices = decide.Plan, nil // topology has the devices from now on
	a.metrics = newMetrics(a)
	if registry != nil {
		a.metrics.register(registry)
	}
	if cfg.Record.Folder != "" {
		a.round.rec, a.round.secret = flight.New(cfg.Record, log), newRedactor()
	}
	a.wakes = newWakes(cfg.Traces, registry)
	return a, nil
}

// Run is the owner loop. It blocks until ctx ends; then it cancels the calls under way, waits for them, and returns nil.
// Instances keep running. Call it once.
func (a *Autoscaler) Run(ctx context.Context) error {
	if a.calls.ctx != nil {
		return errors.New("autoscaler: Run was called twice")
	}
	var cancel context.CancelFunc
	a.calls.ctx, cancel = context.WithCancel(ctx)
	defer a.calls.ops.Wait()
	defer cancel()
	defer a.box.close()
	defer a.startRecorder()()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		came := a.box.take()
		if ctx.Err() != nil {
			return nil // don't count the calls that the end of ctx made fail
		}
		began := time.Now()
		next := a.goRound(came)
		took := time.Since(began)
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(a.clock.until(next))
		}
		select {
		case <-a.box.Bell:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if took >= longRound {
			select {
			case <-time.After(time.Until(began.Add(2 * took))):
			case <-ctx.Done():
			}
		}
	}
}

// longRound is how long a round takes that is followed by a pause as long: messages gather.
const longRound = time.Millisecond

// goRound returns the time when the next plan is due.
func (a *loop) goRound(came []message) time.Time {
	now, step := a.clock.read()
	a.round.begin(a, now, step)
	a.enter(now, step)
	for _, m := range came {
		if m.in == nil {
			m.do()
			continue
		}
		if p, put := m.in.(*functionPut); put {
			p.Recalled = a.recall(p.Spec)
		}
		a.round.took(m.in)
		m.in.apply(a)
	}
	a.settle()
	next := a.plan()
	a.round.end()
	return next
}

// enter sets the time of a round. step is by how much the machine's clock was set.
func (a *loop) enter(now time.Time, step time.Duration) {
	a.now = now
	if step != 0 {
		a.log.Info("the machine's clock was set, or the machine was suspended", "by", step.String())
		a.shift(step)
	}
}

// plan returns the time when the next plan is due.
func (a *loop) plan() time.Time {
	now := a.now
	var expiry time.Time // of a demand, or when a poll is due
	for _, f := range a.order {
		expiry = earlier(expiry, earlier(a.expire(f, now), a.probe(f, now)))
	}
	s := a.snapshot()
	for _, f := range a.order {
		a.holds(f)
	}
	began := time.Now()
	actions, next := a.decide(s, now)
	a.metrics.plan.Observe(time.Since(began).Seconds())
	acted := false
	for i := range actions {
		a.calls.act(&actions[i], now)
		acted = acted || actions[i].Kind != decide.Wait
	}
	// An instance that is put to sleep frees its grant for another. One more plan is enough.
	if a.again = acted && !a.again; a.again {
		a.box.Ring()
	}
	return earlier(next, expiry)
}
