package queue

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// payer is a request in a slow account of costs: what it should have paid, and where it is.
type payer struct {
	w      *Want
	leave  context.CancelCauseFunc
	got    chan *Slot // closed: it left, or was refused
	slot   *Slot
	ended  bool
	paid   float64 // by its hook
	should float64
}

// TestCosts compares what requests pay, in random schedules, with an account that is made up each millisecond. All
// of what is held while any request runs or waits for an instance to start is paid for, and nothing else.
func TestCosts(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { compareCosts(t, rand.New(rand.NewPCG(seed, 4))) })
	}
}

func compareCosts(t *testing.T, r *rand.Rand) {
	f := startFunction(t, 2, nil)
	ids := []api.InstanceID{"m-0001", "m-0002", "m-0003"}
	gpus, states, seq := map[api.InstanceID]float64{}, map[api.InstanceID]api.State{ids[0]: api.Awake}, uint64(1)
	report := func(id api.InstanceID, s api.State) {
		seq++
		states[id] = s
		f.q.ObserveInstance(api.InstanceStatus{Instance: id, Function: f.Name, State: s, PID: 7, Seq: seq, Endpoint: api.Endpoint("http://192.0.2." + string(id[5:]) + ":80"), Since: time.Now()})
	}
	var all []*payer
	held := 0.0
	for range 2000 {
		switch p := r.IntN(40); {
		case p < 3:
			report(ids[r.IntN(len(ids))], []api.State{api.Starting, api.Awake, api.Asleep}[p])
		case p == 3:
			id := ids[r.IntN(len(ids))]
			gpus[id] = float64(r.IntN(4)) / 2
			f.q.Hold(f.Name, id, gpus[id])
		case p == 4:
			f.q.Charge()
		case p < 9 && len(all) < 300:
			ctx, leave := context.WithCancelCause(t.Context())
			one := &payer{leave: leave, got: make(chan *Slot, 1)}
			one.w = &Want{Client: "a", Begun: time.Now(), End: leave, Pays: func(s float64) { one.paid += s }}
			all = append(all, one)
			go func() {
				defer close(one.got)
				if s, err := f.Acquire(ctx, one.w); err == nil {
					one.got <- s
				}
			}()
		case p < 14 && len(all) > 0:
			one := all[r.IntN(len(all))]
			switch {
			case one.ended:
			case one.slot == nil:
				one.leave(errors.New("left"))
			case p == 9:
				one.slot.GiveBack("")
				s := one.slot
				one.slot = nil
				one.got = make(chan *Slot, 1)
				var ctx context.Context
				ctx, one.leave = context.WithCancelCause(t.Context())
				go func() {
					defer close(one.got)
					if s, err := f.Acquire(ctx, s.want); err == nil {
						one.got <- s
					}
				}()
			default:
				one.slot.Done(Used{Served: true, Input: 1, Output: 1})
				f.Leave(one.w)
				one.slot, one.ended = nil, true
			}
		}
		synctest.Wait()
		at, waiting := map[api.InstanceID][]*payer{}, []*payer{}
		for _, one := range all {
			if one.slot == nil && !one.ended {
				select {
				case s, ok := <-one.got:
					if one.slot = s; !ok {
						one.ended = true
						f.Leave(one.w)
					}
				default:
				}
			}
			switch {
			case one.slot != nil:
				at[one.slot.Instance] = append(at[one.slot.Instance], one)
			case !one.ended:
				waiting = append(waiting, one)
			}
		}
		for _, id := range ids {
			payers := at[id]
			if len(payers) == 0 && states[id] == api.Starting {
				payers = waiting
			}
			for _, one := range payers {
				one.should += gpus[id] / 1000 / float64(len(payers))
			}
			if len(payers) > 0 {
				held += gpus[id] / 1000
			}
		}
		time.Sleep(time.Millisecond)
	}
	sum, waited := 0.0, 0
	for _, one := range all {
		if one.slot == nil {
			one.leave(errors.New("left"))
		}
	}
	synctest.Wait()
	for n, one := range all {
		if one.slot != nil {
			one.slot.Done(Used{})
		}
		f.Leave(one.w)
		if got := one.w.GPUSeconds; math.Abs(got-one.should) > 1e-6 || math.Abs(got-one.paid) > 1e-9 {
			t.Errorf("request %d paid %g, and its hook %g, want %g", n, got, one.paid, one.should)
		}
		if _, woke, _ := one.w.Waited(); woke > 0 {
			waited++
		}
		sum += one.w.GPUSeconds
	}
	if math.Abs(sum-held) > held/1000 || held == 0 || waited == 0 {
		t.Errorf("%d requests, %d of which waited, paid %g of %g GPU-seconds", len(all), waited, sum, held)
	}
	for _, id := range ids {
		f.q.Hold(f.Name, id, 0)
		report(id, api.Gone)
	}
	if len(f.costs.holders) > 0 {
		t.Errorf("%d instances are left", len(f.costs.holders))
	}
}
