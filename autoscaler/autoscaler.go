package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/grants"
	"github.com/rouse-dev/rouse/autoscaler/history"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/autoscaler/wakes"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/due"
	"github.com/rouse-dev/rouse/internal/tombstone"
)

// Autoscaler makes all decisions. See [New] and [Autoscaler.Run].
type Autoscaler struct {
	cfg     Config
	fx      Effects
	emitter api.Emitter
	log     *slog.Logger
	metrics *metrics
	wakes   *wakes.Store
	history *history.Recorder
	box     mailbox

	// ops counts the calls of Effects under way; opsCtx is their context.
	ops    sync.WaitGroup
	opsCtx context.Context

	// The loop owns all fields below.
	functions  map[api.FunctionName]*function
	order      []*function // all functions, by name
	instances  map[api.InstanceID]*instance
	tombstones tombstone.Set // IDs of ended instances, so that late reports don't recreate them
	epochs     grants.Epochs
	counter    map[string]int // the last instance number, by the function's short name
	stopping   bool           // StopAll was called
	emptied    []chan struct{}
	world      *decide.World
	planner    planner // world, except in tests
	dirty      dirtyQueue
	due        due.Queue[*function]       // functions, by the time when a demand expires or a probe is due
	others     map[api.DeviceID]api.Bytes // memory of devices that other programs use, as measured
	usage      *usage.Meter
	again      bool // the last plan acted, so one more plan follows
	clock      clock
	now        time.Time        // the time of this round
	calls      map[uint64]*call // calls of Effects under way, by number
	lastCall   uint64
	rooms      []inventory.Room // rooms, unmanaged and elastic: as last given to world
	unmanaged  []inventory.UnmanagedPod
	elastic    bool
	round      round // the recording of this round

	waiters atomic.Uint64 // the last number given to a caller that waits for an operator's order
}

// planner makes plans; see [decide.World.Plan].
type planner interface {
	Plan(now time.Time) ([]decide.Action, time.Time)
}

// New returns an autoscaler and starts nothing. emitter receives its decisions, registry its metrics; either may be nil.
func New(cfg Config, fx Effects, emitter api.Emitter, log *slog.Logger, registry prometheus.Registerer) (*Autoscaler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("autoscaler: %w", err)
	}
	if emitter == nil {
		emitter = api.EmitterFunc(func(api.Event) {})
	}
	a := &Autoscaler{
		cfg: cfg.withDefaults(), fx: fx, emitter: emitter, log: log,
		box:       mailbox{Bell: bell.New(), closed: make(chan struct{})},
		functions: make(map[api.FunctionName]*function),
		instances: make(map[api.InstanceID]*instance),
		counter:   make(map[string]int),
		epochs:    grants.Epochs{Term: cfg.Term},
		calls:     make(map[uint64]*call),
		clock:     newClock(),
	}
	a.usage = usage.New(time.Now())
	a.usage.SetDevices(time.Now(), a.cfg.Devices)
	a.history = history.New(time.Now())
	a.history.SetDevices(time.Now(), a.cfg.Devices)
	a.dirty.in = make(map[api.FunctionName]bool)
	a.world = decide.NewWorld(a.cfg.Policy, a.cfg.Devices)
	a.planner, a.cfg.Devices = a.world, nil // world owns the devices from now on
	a.metrics = newMetrics(a)
	if registry != nil {
		if err := a.metrics.register(registry); err != nil {
			return nil, fmt.Errorf("autoscaler: %w", err)
		}
	}
	if cfg.Record.Folder != "" {
		a.round.rec, a.round.secret = flight.New(cfg.Record, log), newRedactor()
	}
	var err error
	if a.wakes, err = wakes.New(cfg.Traces, registry); err != nil {
		return nil, fmt.Errorf("autoscaler: %w", err)
	}
	return a, nil
}

// Run is the owner loop. It blocks until ctx ends; then it cancels the calls under way, waits for them, and returns nil.
// Instances keep running: see [Autoscaler.StopAll]. It may be called once.
func (a *Autoscaler) Run(ctx context.Context) error {
	if a.opsCtx != nil {
		return errors.New("autoscaler: Run was called twice")
	}
	var cancel context.CancelFunc
	a.opsCtx, cancel = context.WithCancel(ctx)
	defer a.ops.Wait()
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
		if next := a.goRound(came); next.IsZero() {
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
	}
}

// goRound runs one round of the loop: it applies the messages, plans and acts. It returns the time when the next plan is
// due.
func (a *Autoscaler) goRound(came []message) time.Time {
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

// enter sets the time of a round. step is the amount by which the machine's clock was set.
func (a *Autoscaler) enter(now time.Time, step time.Duration) {
	a.now = now
	if step != 0 {
		a.log.Info("the machine's clock was set, or the machine was suspended", "by", step.String())
		a.shift(step)
	}
}

// plan plans and acts. It returns the time when the next plan is due.
func (a *Autoscaler) plan() time.Time {
	now := a.now
	expiry := a.prepare(now)
	began := time.Now()
	actions, next := a.planner.Plan(now)
	a.metrics.plan.Observe(time.Since(began).Seconds())
	acted := false
	for i := range actions {
		a.act(&actions[i], now)
		acted = acted || actions[i].Kind != decide.Wait
	}
	// An action changes what the next plan sees: an instance that is put to sleep frees its grant for another. One more plan
	// is enough, because the results of its calls come as messages.
	if a.again = acted && !a.again; a.again {
		a.box.Ring()
	}
	return earlier(next, expiry)
}

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// message is work for the loop: an input, or a function that changes nothing that decisions depend on.
type message struct {
	in input // nil: call do
	do func()
}

// mailbox is the queue of messages for the loop. Posting never blocks; senders are bounded by what they wait for or by their
// own rate.
type mailbox struct {
	bell.Bell // wakes the loop
	// closed is closed by the loop when it stops taking messages.
	closed chan struct{}

	mu       sync.Mutex // guards all below
	queue    []message
	recycled []message // the previous queue's memory
	ended    bool
}

// post adds a message. It returns false if the loop has ended.
func (b *mailbox) post(m message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.queue = append(b.queue, m)
	b.Ring()
	return true
}

// take returns and removes all messages. The slice is valid until the next call.
func (b *mailbox) take() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queue
	clear(b.recycled[:cap(b.recycled)])
	b.queue, b.recycled = b.recycled[:0], q
	return q
}

func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.queue = nil
	close(b.closed)
}

// do has the loop call f, which must not change anything that plans see. It does not block. It returns false if the loop has
// ended.
func (a *Autoscaler) do(f func()) bool { return a.box.post(message{do: f}) }

// ask has the loop call answer and waits for the result. It returns an error if ctx or the loop ends first.
func ask[T any](ctx context.Context, a *Autoscaler, answer func() T) (T, error) {
	c := make(chan T, 1) // so that the loop never blocks on its one send
	return await(ctx, a, a.do(func() { c <- answer() }), c)
}

// answerTo posts an input and waits for the loop's answer on c, which must have room for one. It fails like ask.
func answerTo[T any](ctx context.Context, a *Autoscaler, in input, c <-chan T) (T, error) {
	return await(ctx, a, a.put(in), c)
}

func await[T any](ctx context.Context, a *Autoscaler, posted bool, c <-chan T) (T, error) {
	var zero T
	if !posted {
		return zero, errEnded
	}
	select {
	case v := <-c:
		return v, nil
	case <-a.box.closed:
		return zero, errEnded
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

// reply sends err on c. In a replay c is nil and reply does nothing.
func reply(c chan<- error, err error) {
	if c != nil {
		c <- err
	}
}

var errEnded = api.Errorf(503, api.CodeShutdown, "the autoscaler is shutting down")
