package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/tombstone"
)

// Autoscaler makes all decisions. See [New] and [Autoscaler.Run]. Its exported methods may be called from any goroutine: they send messages to
// the loop.
type Autoscaler struct {
	*loop
	waiters atomic.Uint64 // the last number given to a caller that waits for an operator's order
}

// loop is the owner loop: it has all state and plans.
type loop struct {
	cfg     Config
	emitter api.Emitter
	log     *slog.Logger
	metrics *metrics
	wakes   *wakeStore
	history *History
	box     mailbox

	// The loop owns all fields below.
	functions  map[api.FunctionName]*function
	order      []*function // all functions, by name
	instances  map[api.InstanceID]*instance
	tombstones tombstone.Set // IDs of ended instances, so that late reports don't recreate them
	stopping   bool          // StopAll was called
	emptied    []chan struct{}
	topology   *decide.Topology
	decide     planner                    // decide.Plan, except in tests
	others     map[api.DeviceID]api.Bytes // memory of devices that other programs use, as measured
	usage      *usage.Meter
	shares     map[api.InstanceID]float64 // as last told to activators
	again      bool                       // the last plan acted, so one more plan follows
	clock      clock
	now        time.Time        // the time of this round
	rooms      []inventory.Room // rooms, unmanaged and elastic: as last set
	unmanaged  []inventory.UnmanagedPod
	elastic    bool
	round      round // the recording of this round
	calls      *calls
}

// planner makes plans; see [decide.Plan].
type planner func(decide.Snapshot, time.Time) ([]decide.Action, time.Time)

// New returns an autoscaler and starts nothing. emitter receives its decisions, registry its metrics; either may be nil.
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
// Instances keep running: see [Autoscaler.StopAll]. It may be called once.
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

// longRound is how long a round takes that is followed by a pause as long, in which messages gather: so rounds take at most half of the time.
const longRound = time.Millisecond

// goRound runs one round of the loop: it applies the messages, plans and acts. It returns the time when the next plan is
// due.
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

// enter sets the time of a round. step is the amount by which the machine's clock was set.
func (a *loop) enter(now time.Time, step time.Duration) {
	a.now = now
	if step != 0 {
		a.log.Info("the machine's clock was set, or the machine was suspended", "by", step.String())
		a.shift(step)
	}
}

// expireAndProbe applies what depends on time alone. It returns the time when it is next due.
func (a *loop) expireAndProbe(now time.Time) (next time.Time) {
	for _, f := range a.order {
		next = earlier(next, earlier(a.expire(f, now), a.probe(f, now)))
	}
	return next
}

// snapshot returns all that plans look at.
func (a *loop) snapshot() decide.Snapshot {
	s := decide.Snapshot{Policy: a.cfg.Policy, Topology: a.topology, Rooms: a.rooms, Unmanaged: a.unmanaged, Elastic: a.elastic,
		Functions: make([]*decide.Function, len(a.order))}
	for k, f := range a.order {
		f.Need, f.Certain = a.need(f)
		if a.stopping {
			f.Order = decide.OrderStop
		}
		s.Functions[k] = &f.Function
	}
	return s
}

// need returns the memory that an awake instance of f takes, and whether that is certain.
func (a *loop) need(f *function) (api.Memory, bool) {
	return f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.topology.LargestHost())
}

// account returns how the memory of each device is used.
func (a *loop) account() []admin.Device { return decide.Account(a.snapshot(), a.now) }

func (a *loop) setDevices(devices []inventory.Device) {
	a.topology = decide.NewTopology(devices)
	a.usage.SetDevices(time.Now(), devices)
	a.history.SetDevices(time.Now(), devices)
}

// plan plans and acts. It returns the time when the next plan is due.
func (a *loop) plan() time.Time {
	now := a.now
	expiry := a.expireAndProbe(now)
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
func (a *loop) do(f func()) bool { return a.box.post(message{do: f}) }

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
