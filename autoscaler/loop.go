package autoscaler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/tombstone"
)

// Autoscaler makes all decisions; see [New]. It is safe for concurrent use. Methods that report something do not block;
// those that read wait for Run to run.
type Autoscaler struct {
	*loop
	waiters atomic.Uint64 // the last number given to a waiter
}

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
	order      []*function // by name
	instances  map[api.InstanceID]*instance
	tombstones tombstone.Set // of ended instances: late reports don't recreate them
	stopping   bool
	emptied    []chan struct{}
	topology   *decide.Topology
	decide     planner                    // decide.Plan, except in tests
	others     map[api.DeviceID]api.Bytes // of devices that other programs use, as measured
	usage      *usage.Meter
	shares     map[api.InstanceID]float64 // as last told to activators
	again      bool                       // one more plan follows
	clock      clock
	now        time.Time
	rooms      []inventory.Room // as last set, like unmanaged and elastic
	unmanaged  []inventory.UnmanagedPod
	elastic    bool
	round      round
	calls      *calls
}

type planner func(decide.Snapshot, time.Time) ([]decide.Action, time.Time)

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

func (a *loop) need(f *function) (api.Memory, bool) {
	return f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.topology.LargestHost())
}

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

// input is a message that decisions depend on. Its exported fields are recorded and replayed.
type input interface {
	apply(a *loop)
}

// message is an input, or a function that changes nothing that decisions depend on.
type message struct {
	in input // nil: call do
	do func()
}

// mailbox never blocks senders: they are bounded by what they wait for or their own rate.
type mailbox struct {
	bell.Bell // wakes the loop
	// closed is closed by the loop when it stops taking messages.
	closed chan struct{}

	mu       sync.Mutex // guards all below
	queue    []message
	recycled []message // the previous queue's memory
	ended    bool
}

// post returns false if the loop has ended.
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

// take's slice is valid until the next call.
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

// do has the loop call f, which must not change anything that plans see. false: the loop has ended.
func (a *loop) do(f func()) bool { return a.box.post(message{do: f}) }

// put returns false if the loop has ended.
func (a *loop) put(in input) bool { return a.box.post(message{in: in}) }

// ask has the loop call answer. It fails if ctx or the loop ends first.
func ask[T any](ctx context.Context, a *Autoscaler, answer func() T) (T, error) {
	c := make(chan T, 1) // the loop never blocks on its one send
	return await(ctx, a, a.do(func() { c <- answer() }), c)
}

// answerTo posts an input and waits for the answer on c, which has room for one. It fails like ask.
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

// reply does nothing in a replay, where c is nil.
func reply(c chan<- error, err error) {
	if c != nil {
		c <- err
	}
}

var errEnded = api.Errorf(503, api.CodeShutdown, "the autoscaler is shutting down")

// clock is read once a round. It runs at an even pace although the machine's clock may be set or the machine suspended:
// the loop then shifts all its times ([loop.shift]), and nothing becomes overdue. Its times have no monotonic part.
type clock struct {
	began time.Time // with its monotonic part
	base  time.Time // the wall-clock time that began stands for
}

// mostOff is tolerated: NTP adjusts the machine's clock all the time.
const mostOff = 250 * time.Millisecond

func newClock() clock {
	now := time.Now()
	return clock{began: now, base: now.Round(0)}
}

// read returns whole microseconds, and by how much the machine's clock was set since the last read.
func (c *clock) read() (now time.Time, step time.Duration) {
	t := time.Now()
	now = c.base.Add(t.Sub(c.began))
	if off := t.Round(0).Sub(now); off > mostOff || off < -mostOff {
		step = off.Truncate(time.Microsecond)
		c.base = c.base.Add(step)
		now = now.Add(step)
	}
	return now.Add(time.Microsecond - 1).Truncate(time.Microsecond), step
}

func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.base.Add(time.Since(c.began))) }

func (a *loop) shift(d time.Duration) {
	for _, f := range a.order {
		move(d, &f.WaitingSince, &f.LastRequest, &f.PressedSince, &f.ServedUntil, &f.RetryAt, &f.FailedAt, &f.RefusedAt, &f.OrderedAt, &f.Scale.Until, &f.Past.Arrivals.At)
		for k := range f.NeededAt {
			move(d, &f.NeededAt[k])
		}
		for who, r := range f.demands {
			r.heard = r.heard.Add(d)
			f.demands[who] = r
		}
		for _, known := range f.Instances {
			i := a.instances[known.Status.Instance]
			move(d, &i.Since, &i.RoseAt, &i.GrantedAt, &i.Settles, &i.RetryAt, &i.Heard, &i.Grant.Expires)
		}
	}
	for _, c := range a.calls.under {
		move(d, &c.Began)
	}
}

func move(d time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}

// kindDecision is the record kind of decisions. Inputs have their types' names.
const kindDecision = "decision"

var inputs = func() map[string]reflect.Type {
	of := make(map[string]reflect.Type)
	for _, in := range []input{&functionPut{}, &functionRemoved{}, &devicesSet{}, &usageSeen{}, &roomsSet{}, &elasticSet{}, &instanceReported{}, &demandReported{},
		&used{}, &orderGiven{}, &orderWithdrawn{}, &scaleSet{}, &allStopped{}, &returned{}} {
		of[kindOf(in)] = reflect.TypeOf(in).Elem()
	}
	return of
}()

func kindOf(in input) string { return reflect.TypeOf(in).Elem().Name() }

// round records the current round. The loop owns it.
type round struct {
	rec    *flight.Recorder // nil: nothing is recorded
	secret *redactor
	saw    func(api.Decision)
}

func (a *loop) startRecorder() (end func()) {
	if a.round.rec == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.calls.ctx))
	var done sync.WaitGroup
	done.Go(func() { _ = a.round.rec.Run(ctx) }) // its error is always nil
	return func() {
		cancel()
		done.Wait()
	}
}

// begin may be preceded by a new segment.
func (r *round) begin(a *loop, now time.Time, step time.Duration) {
	if r.rec == nil {
		return
	}
	if r.rec.Due(now) {
		if a.now.IsZero() {
			a.now = now
		}
		s := a.save()
		r.secret.learnAll(s)
		r.rec.Begin(a.now, now, s, func() { r.secret.state(s) })
	}
	r.rec.Round(now, step)
}

func (r *round) took(in input) {
	if r.rec != nil {
		in = r.secret.input(in)
		r.rec.Add(kindOf(in), in)
	}
}

func (r *round) decided(d api.Decision) {
	if r.saw != nil {
		r.saw(d)
	}
	if r.rec != nil {
		d.Reason, d.Error = r.secret.text(d.Reason), r.secret.text(d.Error)
		r.rec.Add(kindDecision, &d)
	}
}

func (r *round) end() {
	if r.rec != nil {
		r.rec.End()
	}
}

// CopyRecord writes the record to w. If nothing is recorded it returns an *[api.Error] with status 404.
func (a *Autoscaler) CopyRecord(w io.Writer) error {
	if a.round.rec == nil {
		return api.Errorf(http.StatusNotFound, "", "nothing is recorded here: its record was switched off")
	}
	if err := a.round.rec.Copy(w); err != nil {
		return fmt.Errorf("copy the record: %w", err)
	}
	return nil
}
