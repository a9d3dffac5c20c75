package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Replay goes through one segment of a record, with the code that decides in production. It does nothing to the world, and reads no
// clock: times, what was taken in, and what calls came to are the record's. It is for one goroutine. Close it.
type Replay struct {
	a       *Autoscaler
	in      *flight.Reader
	decided []api.Decision

	peeked bool // next and step are those of the round that comes
	next   time.Time
	step   time.Duration
}

// Round is one round of a replay.
type Round struct {
	At time.Time
	// Decided is what the loop decides now, Recorded what it decided then. They are alike where the replay is faithful.
	Decided, Recorded []api.Decision
	// Seen is what was taken in.
	Seen Seen
}

// Seen is what a round took in of what clients did.
type Seen struct {
	Demands []api.Demand
	Used    []Used
}

// Used is what clients have used of a function through one activator: levels, as in [api.Usage].
type Used struct {
	Function  api.FunctionName
	Activator string
	By        []UsedBy
}

// UsedBy is what somebody, of whom only a digest is known, has used of an instance since Begun.
type UsedBy struct {
	Instance                api.InstanceID
	Who                     string
	Begun                   time.Time
	Requests, Input, Output int64
}

// NewReplay begins to replay s. version is this program's. Where s can't be replayed, the error says why.
func NewReplay(s *flight.Segment, version string) (*Replay, error) {
	shape, err := recordShape()
	if err != nil {
		return nil, err
	}
	in, err := s.Reader(shape, version)
	if err != nil {
		return nil, err
	}
	r := &Replay{in: in}
	if err := r.begin(); err != nil {
		in.Close()
		return nil, err
	}
	return r, nil
}

func (r *Replay) begin() (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the state: the record is not one of an autoscaler: %v", broken)
		}
	}()
	var s saved
	if err := r.in.State(&s); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	c := s.Config
	a, err := New(Config{Devices: s.Devices, Term: s.Epochs.Term, Policy: c.Policy, AssumedMemory: c.AssumedMemory, AssumedResidue: c.AssumedResidue,
		DemandTTL: c.DemandTTL, ProbeAfter: c.ProbeAfter, StopTimeout: c.StopTimeout, CallTimeout: c.CallTimeout, Source: c.Source},
		nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	a.opsCtx = context.Background()
	a.round.saw = func(d api.Decision) { r.decided = append(r.decided, d) }
	a.restore(&s)
	r.a = a
	return nil
}

// Close frees what r has.
func (r *Replay) Close() { r.in.Close() }

// Peek is the time of the next round, which it does not replay. Its errors are those of Next.
func (r *Replay) Peek() (time.Time, error) {
	if r.peeked {
		return r.next, nil
	}
	var err error
	r.next, r.step, err = r.in.Round()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("after %s: %w", r.a.now.Format(time.RFC3339Nano), err)
	}
	r.peeked = err == nil
	return r.next, err
}

// Next replays the next round. [io.EOF] says that there is none. After any other error nothing more can be replayed. A round that can't be
// gone through, because the record is not what the loop could have seen, is an error too.
func (r *Replay) Next() (round Round, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("at %s: the record is not one of an autoscaler: %v", round.At.Format(time.RFC3339Nano), broken)
		}
	}()
	now, err := r.Peek()
	if err != nil {
		return round, err
	}
	round.At = now
	r.decided, r.peeked = nil, false
	r.a.enter(now, r.step)
	for kind, found := r.in.Next(); found; kind, found = r.in.Next() {
		if kind == kindDecision {
			var d api.Decision
			r.in.Take(&d)
			round.Recorded = append(round.Recorded, d)
			continue
		}
		in := newInput(kind)
		if in == nil {
			return round, fmt.Errorf("at %s: there is something of the unknown kind %d", now.Format(time.RFC3339Nano), kind)
		}
		if r.in.Take(in); r.in.Err() == nil {
			round.Seen.add(in)
			in.apply(r.a)
		}
	}
	if err := r.in.Err(); err != nil {
		return round, fmt.Errorf("at %s: %w", now.Format(time.RFC3339Nano), err)
	}
	r.a.settle()
	r.a.plan()
	round.Decided = r.decided
	return round, nil
}

func newInput(kind uint8) input {
	for _, k := range kinds {
		if k.kind == kind {
			return k.value()
		}
	}
	return nil
}

func (s *Seen) add(in input) {
	switch in := in.(type) {
	case *demandReported:
		s.Demands = append(s.Demands, in.Demand)
	case *used:
		s.Used = append(s.Used, Used{in.Function, in.Activator, in.Uses})
	}
}

// Now is the time of the last round.
func (r *Replay) Now() time.Time { return r.a.now }

// Devices are those that there are now.
func (r *Replay) Devices() []inventory.Device { return r.a.world.Devices() }

// Ledger is what [Autoscaler.Devices] would have returned after the last round.
func (r *Replay) Ledger() (list []admin.Device) {
	for _, l := range r.a.account(r.a.now) {
		list = append(list, l.Status())
	}
	return list
}

// Declared is how many functions there are now.
func (r *Replay) Declared() (n int) {
	for _, f := range r.a.order {
		if !f.Undeclared {
			n++
		}
	}
	return n
}

// Functions are the declared functions as they are after the last round, by name.
func (r *Replay) Functions() (list []admin.Function) {
	for _, f := range r.a.order {
		if !f.Undeclared {
			v := r.a.view(f)
			v.Activator = api.Activity{Waiting: f.Waiting, Running: f.Running, LastRequest: f.LastRequest}
			list = append(list, v)
		}
	}
	return list
}

// Why is what [Autoscaler.Why] would have returned after the last round.
func (r *Replay) Why(name api.FunctionName) []api.Decision {
	if f := r.a.functions[name]; f != nil {
		return f.decisions
	}
	return nil
}

// check says what of s no loop has.
func (s *saved) check() error {
	for k, f := range s.Functions {
		name := f.Function.Spec.Name
		if k > 0 && s.Functions[k-1].Function.Spec.Name >= name {
			return fmt.Errorf("function %q is not in its order", name)
		}
		for n, i := range f.Instances {
			if n > 0 && f.Instances[n-1].Instance.Status.Instance >= i.Instance.Status.Instance {
				return fmt.Errorf("instance %q is not in its order", i.Instance.Status.Instance)
			}
		}
	}
	return nil
}

// Held is how many devices have an instance that does not sleep: GPUs, or hosts by the instances that have no GPU.
func (r *Replay) Held() (gpus, hosts int) {
	held := make(map[api.DeviceID]bool)
	for _, i := range r.a.instances {
		if i.Status.State == api.Asleep && !i.BeingWoken() {
			continue
		}
		for _, d := range i.Status.Devices {
			held[d] = true
		}
		if len(i.Status.Devices) == 0 {
			held[inventory.HostOf(i.Status.Node)] = true
		}
	}
	for _, d := range r.a.world.Devices() {
		switch {
		case !held[d.ID]:
		case d.IsHost():
			hosts++
		default:
			gpus++
		}
	}
	return gpus, hosts
}

// Awake says whether an instance of a function is awake.
func (r *Replay) Awake(name api.FunctionName) bool {
	f := r.a.functions[name]
	return f != nil && f.Load.Awake > 0
}
