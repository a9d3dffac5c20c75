package autoscaler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
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

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// input is a message that the loop's state and decisions depend on. Its exported fields are recorded, and a replay applies them again.
// Its unexported fields serve callers that wait for an answer.
type input interface {
	apply(a *loop)
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

// put posts an input. It does not block. It returns false if the loop has ended.
func (a *loop) put(in input) bool { return a.box.post(message{in: in}) }

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
