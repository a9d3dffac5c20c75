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

// Autoscaler is the owner of all decisions. See [New] and [Autoscaler.Run].
type Autoscaler struct {
	cfg     Config
	fx      Effects
	emitter api.Emitter
	log     *slog.Logger
	metrics *metrics
	wakes   *wakes.Store
	history *history.Recorder
	box     mailbox

	// ops counts the calls of Effects under way; opsCtx is theirs.
	ops    sync.WaitGroup
	opsCtx context.Context

	// All below belongs to the loop.
	functions  map[api.FunctionName]*function
	order      []*function // of functions, by name
	instances  map[api.InstanceID]*instance
	tombstones tombstone.Set // so that late reports don't bring back instances that ended
	epochs     grants.Epochs
	counter    map[string]int // the last number given to an instance, by the function's short name
	stopping   bool           // everything is to be stopped
	emptied    []chan struct{}
	world      *decide.World
	planner    planner // the world
	dirty      dirtyQueue
	due        due.Queue[*function]       // functions by when their demand expires, or an instance is to be probed
	others     map[api.DeviceID]api.Bytes // what others use of devices, as measured
	usage      *usage.Meter
	again      bool // the next plan is only for what the last one began
	clock      clock
	now        time.Time        // of this round: all that it does is at this time
	calls      map[uint64]*call // those of Effects under way, by number
	lastCall   uint64
	rooms      []inventory.Room // as the world was told, as the next two
	unmanaged  []inventory.UnmanagedPod
	elastic    bool
	round      round // what is recorded of this round

	waiters atomic.Uint64 // the last number given to a caller that waits for an order by hand
}

// planner plans; see [decide.World.Plan].
type planner interface {
	Plan(now time.Time) ([]decide.Action, time.Time)
}

// New makes an autoscaler that starts nothing yet. emitter takes its decisions,
// registry its metrics; either may be nil.
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
	a.planner, a.cfg.Devices = a.world, nil // the world keeps them from now on
	a.metrics = newMetrics(a)
	if registry != nil {
		if err := a.metrics.register(registry); err != nil {
			return nil, fmt.Errorf("autoscaler: %w", err)
		}
	}
	shape, err := recordShape()
	if err != nil {
		return nil, fmt.Errorf("autoscaler: record: %w", err)
	}
	if cfg.Record.Folder != "" {
		a.round.rec, a.round.secret = flight.New(cfg.Record, shape, log), newRedactor()
	}
	if a.wakes, err = wakes.New(cfg.Traces, registry); err != nil {
		return nil, fmt.Errorf("autoscaler: %w", err)
	}
	return a, nil
}

// Run is the owner loop. It blocks until ctx ends; then it cancels the calls
// under way, waits for them, and returns nil. Instances are left as they are:
// see [Autoscaler.StopAll]. It runs once.
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
			return nil // calls fail from now on because of that alone
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

// goRound is one round of the loop: it takes in what has come, plans, acts, and says when the next plan is due.
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

// enter has a round be at a time. step is by how much the clock was set.
func (a *Autoscaler) enter(now time.Time, step time.Duration) {
	a.now = now
	if step != 0 {
		a.log.Info("the machine's clock was set, or the machine was suspended", "by", step.String())
		a.shift(step)
	}
}

// plan decides, acts, and says when the next plan is due.
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
	// What was begun changes what the next plan sees: an instance that is put to sleep leaves its grant to another. One more
	// plan is enough, for the ends of the calls that it begins are messages.
	if a.again = acted && !a.again; a.again {
		a.box.Ring()
	}
	return earlier(next, expiry)
}

// earlier is the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// message is an input, or something else that the loop does: it only tells what is.
type message struct {
	in input // nil: do
	do func()
}

// mailbox holds messages for the loop, which takes them in order. Posting
// never blocks; senders are bounded by what they wait for or by their own rate.
type mailbox struct {
	bell.Bell // has the loop go round once more
	// closed is closed by the loop when it takes no more.
	closed chan struct{}

	mu       sync.Mutex // guards all below
	queue    []message
	recycled []message // the memory of the queue before
	ended    bool
}

// post adds a message; false says that the loop has ended.
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

// take returns what has come. The loop is done with it before it takes again.
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

// do has the loop do something that changes nothing that plans see. It does not block; false says that the loop has ended.
func (a *Autoscaler) do(f func()) bool { return a.box.post(message{do: f}) }

// ask has the loop work out an answer and waits for it. It returns the zero
// value and an error if ctx or the loop ends before.
func ask[T any](ctx context.Context, a *Autoscaler, answer func() T) (T, error) {
	c := make(chan T, 1) // the loop sends once and never waits
	return await(ctx, a, a.do(func() { c <- answer() }), c)
}

// answerTo posts an input and waits for what the loop answers in c, which has room for that. It ends like ask.
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

// reply answers whoever waits; in a replay nobody does, and c is nil.
func reply(c chan<- error, err error) {
	if c != nil {
		c <- err
	}
}

var errEnded = api.Errorf(503, api.CodeShutdown, "the autoscaler is shutting down")
