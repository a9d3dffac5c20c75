package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Replay replays one segment of a record with the code that decides in production, without effects or a clock. It is not
// safe for concurrent use.
type Replay struct {
	a       *Autoscaler
	in      *flight.Reader
	decided []api.Decision

	peeked bool
	next   flight.Round
}

// Round is one round of a replay.
type Round struct {
	At time.Time
	// Decided are the decisions of the replay, Recorded those of the record: equal if the replay is faithful.
	Decided, Recorded []api.Decision
	Seen              Seen
}

// Seen holds a round's demands and usage.
type Seen struct {
	Demands []api.Demand
	Used    []Used
}

// Used is the usage of a function through one activator, as totals.
type Used struct {
	Function  api.FunctionName
	Activator string
	By        []UsedBy
}

// NewReplay begins to replay s.
func NewReplay(s *flight.Segment) (r *Replay, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the state: the record is not one of an autoscaler: %v", broken)
		}
	}()
	var state saved
	in, err := s.Reader(&state)
	if err != nil {
		return nil, err
	}
	if err := state.check(); err != nil {
		return nil, fmt.Errorf("the state: %w", err)
	}
	state.Config.Devices, state.Config.Term = state.Devices, state.Epochs.Term
	a, err := New(state.Config, nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, fmt.Errorf("the state: %w", err)
	}
	r = &Replay{a: a, in: in}
	a.calls.ctx = context.Background()
	a.round.saw = func(d api.Decision) { r.decided = append(r.decided, d) }
	a.restore(&state)
	return r, nil
}

// Peek returns the time of the next round. Its errors are those of Next.
func (r *Replay) Peek() (time.Time, error) {
	if r.peeked {
		return r.next.At, nil
	}
	var err error
	r.next, err = r.in.Round()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("after %s: %w", r.a.now.Format(time.RFC3339Nano), err)
	}
	r.peeked = err == nil
	return r.next.At, err
}

// Next replays the next round. It returns [io.EOF] at the end. After any other error, such as a record that no loop
// could have written, nothing more can be replayed.
func (r *Replay) Next() (round Round, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("at %s: the record is not one of an autoscaler: %v", round.At.Format(time.RFC3339Nano), broken)
		}
	}()
	if round.At, err = r.Peek(); err != nil {
		return round, err
	}
	r.decided, r.peeked = nil, false
	r.a.enter(round.At, r.next.Step)
	for _, item := range r.next.In {
		if err := r.take(item, &round); err != nil {
			return round, fmt.Errorf("at %s: %s: %w", round.At.Format(time.RFC3339Nano), item.Kind, err)
		}
	}
	r.a.settle()
	r.a.plan()
	round.Decided = r.decided
	return round, nil
}

func (r *Replay) take(item flight.Item, round *Round) error {
	if item.Kind == kindDecision {
		var d api.Decision
		err := json.Unmarshal(item.Value, &d)
		round.Recorded = append(round.Recorded, d)
		return err
	}
	of, found := inputs[item.Kind]
	if !found {
		return errors.New("this version knows no such input")
	}
	in := reflect.New(of).Interface().(input)
	if err := json.Unmarshal(item.Value, in); err != nil {
		return err
	}
	round.Seen.add(in)
	in.apply(r.a.loop)
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

// Now returns the time of the last round.
func (r *Replay) Now() time.Time { return r.a.now }

// Devices returns the devices after the last round.
func (r *Replay) Devices() []inventory.Device { return r.a.topology.Devices() }

// Ledger returns the account of each device after the last round.
func (r *Replay) Ledger() []admin.Device { return r.a.account() }

// Declared returns the number of declared functions.
func (r *Replay) Declared() (n int) {
	for _, f := range r.a.order {
		if !f.Undeclared {
			n++
		}
	}
	return n
}

// Functions returns the declared functions, by name.
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

// Why returns the last decisions on a function.
func (r *Replay) Why(name api.FunctionName) []api.Decision {
	if f := r.a.functions[name]; f != nil {
		return f.decisions
	}
	return nil
}

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

// Held returns the number of GPUs with an instance that does not sleep, and of hosts with one without a GPU.
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
	for _, d := range r.a.topology.Devices() {
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

// Awake reports whether an instance of a function is awake.
func (r *Replay) Awake(name api.FunctionName) bool {
	f := r.a.functions[name]
	return f != nil && f.Load.Awake > 0
}
