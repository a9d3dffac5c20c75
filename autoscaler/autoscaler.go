package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/grants"
	"github.com/rouse-dev/rouse/autoscaler/history"
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
}

// planner plans; see [decide.World.Plan].
type planner interface {
	Plan(now time.Time) ([]decide.Action, time.Time)
}

// New makes an autoscaler that starts nothing yet. emitter takes its decisions,
// registry its metrics; either may be nil.
func New(cfg Config, fx Effects, emitter api.Emitter, log *slog.Logger, registry *prometheus.Registry) (*Autoscaler, error) {
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
	var err error
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
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, m := range a.box.take() {
			m()
		}
		a.settle()
		if next := a.plan(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-a.box.Bell:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// plan decides, acts, and says when the next plan is due.
func (a *Autoscaler) plan() time.Time {
	now := time.Now()
	expiry := a.prepare(now)
	actions, next := a.planner.Plan(now)
	a.metrics.plan.Observe(time.Since(now).Seconds())
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

// mailbox holds messages for the loop: closures that it calls in order. Posting
// never blocks; senders are bounded by what they wait for or by their own rate.
type mailbox struct {
	bell.Bell // has the loop go round once more
	// closed is closed by the loop when it takes no more.
	closed chan struct{}

	mu       sync.Mutex // guards all below
	queue    []func()
	recycled []func() // the memory of the queue before
	ended    bool
}

// post adds a message; false says that the loop has ended.
func (b *mailbox) post(m func()) bool {
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
func (b *mailbox) take() []func() {
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

// ask has the loop work out an answer and waits for it. It returns the zero
// value and an error if ctx or the loop ends before.
func ask[T any](ctx context.Context, a *Autoscaler, answer func() T) (T, error) {
	c := make(chan T, 1) // the loop sends once and never waits
	var zero T
	if !a.box.post(func() { c <- answer() }) {
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

var errEnded = api.Errorf(503, api.CodeShutdown, "the autoscaler is shutting down")
