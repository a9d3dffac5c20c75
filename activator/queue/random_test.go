package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// tally adds up what a function tells others of its clients.
type tally struct {
	mu  sync.Mutex
	sum map[string]float64
}

func (t *tally) Served(u control.ClientUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum[u.Client] += u.Cost
}

// TestNothingIsLeft: whatever requests do, and in whatever order, all counters are at zero once they have ended. Clients
// were charged the cost of their requests.
func TestNothingIsLeft(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { nothingIsLeft(t, seed) })
		})
	}
}

func nothingIsLeft(t *testing.T, seed uint64) {
	f := startFunction(t, 3, func(spec *api.Function) {
		spec.Hold = api.Hold{Timeout: time.Minute, Capacity: 6, EvictSheddable: seed%2 == 0}
	})
	charged, paid := &tally{sum: map[string]float64{}}, &tally{sum: map[string]float64{}}
	f.q.cfg.Others = charged
	began := time.Now()
	f.q.Hold(f.Name, "m-0001", 1)
	var gpuSeconds float64
	var actors sync.WaitGroup
	var pauses, waits atomic.Int64
	for n := range 14 {
		actors.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for range 30 {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
				ctx, w := want(t, string(rune('a'+n%4)), []int{-1, 0, 0, 0, 2}[r.IntN(5)])
				w.Sequences, w.Background, w.AtOnce, w.FreeSlot = r.IntN(6), r.IntN(5) == 0, r.IntN(9) == 0, r.IntN(4) == 0
				w.Bytes, w.Input, w.Tokens = 5, 10, 100
				if r.IntN(2) == 0 {
					w.Group = "default/g"
				}
				var pause, unread atomic.Bool
				if n%2 == 0 {
					w.Pause = func() bool { return !pause.Swap(true) }
				}
				w.EndUnread = func() bool {
					if unread.Load() {
						w.End(context.DeadlineExceeded)
					}
					return unread.Load()
				}
				if r.IntN(4) == 0 {
					left := time.AfterFunc(time.Duration(r.IntN(30000))*time.Millisecond, func() { w.End(context.Canceled) })
					defer left.Stop()
				}
				act(ctx, f, w, r, &pause, &unread, paid, &pauses)
				if _, _, waited := w.Waited(); waited {
					waits.Add(1)
				}
				f.Leave(w)
				f.mu.Lock()
				gpuSeconds += w.GPUSeconds
				f.mu.Unlock()
			}
		})
	}
	over := make(chan struct{})
	var world sync.WaitGroup
	world.Go(func() {
		r := rand.New(rand.NewPCG(seed, 99))
		for seq := uint64(2); ; seq++ {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(r.IntN(20000)) * time.Millisecond):
			}
			st := api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: []api.State{api.Awake, api.Asleep, api.Starting, api.Awake}[seq%4], PID: 7, Seq: seq, Endpoint: "http://192.0.2.1:80", Since: time.Now()}
			if r.IntN(2) == 0 {
				st.Instance = "m-0002"
				st.Endpoint = "http://192.0.2.2:80"
				if r.IntN(4) == 0 {
					st.State = api.Gone
				}
			}
			f.q.ObserveInstance(st)
			switch r.IntN(8) {
			case 0:
				f.RefuseWaiting(ErrElsewhere)
			case 1:
				f.sendAway("default/g", 2)
			case 2:
				f.q.Charge()
			case 3:
				f.EndAll(api.Errorf(503, api.CodeShutdown, "ended"))
			}
		}
	})
	actors.Wait()
	close(over)
	world.Wait()
	synctest.Wait()
	f.q.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: api.Awake, PID: 7, Seq: 1 << 40, Endpoint: "http://192.0.2.1:80", Since: time.Now()})
	f.mu.Lock()
	defer f.mu.Unlock()
	q := &f.queue
	if f.slots+f.background+len(f.wants)+q.Len()+int(q.bytes)+int(q.tokens)+q.shared+q.picky+q.all.Len()+len(q.clients)+q.shares.Clients()+f.costs.queue.n != 0 {
		t.Errorf("left are %d slots, %d of the background, %d requests, a queue of %d with %d B, %d tokens, %d shared, %d picky, the clients %v, %d payers",
			f.slots, f.background, len(f.wants), q.Len(), q.bytes, q.tokens, q.shared, q.picky, q.clients, f.costs.queue.n)
	}
	for id, h := range f.costs.holders {
		if h.slots.n != 0 {
			t.Errorf("%d pay for %s", h.slots.n, id)
		}
	}
	for _, i := range f.set.All() {
		if i.Running() != 0 {
			t.Errorf("%d run at %s", i.Running(), i.ID)
		}
	}
	for _, client := range []string{"a", "b", "c", "d"} {
		if sum, used := charged.sum[client], paid.sum[client]; math.Abs(sum-used) > 1e-6 || used == 0 {
			t.Errorf("%s was charged %g, and has used %g", client, sum, used)
		}
	}
	if elapsed := time.Since(began).Seconds(); gpuSeconds <= 0 || gpuSeconds > elapsed {
		t.Errorf("requests paid for %g of %g s", gpuSeconds, elapsed)
	}
	if pauses.Load() == 0 || waits.Load() == 0 {
		t.Errorf("%d pauses and %d waits test little", pauses.Load(), waits.Load())
	}
}

// act is one request's life.
func act(ctx context.Context, f *Function, w *Want, r *rand.Rand, pause, unread *atomic.Bool, paid *tally, pauses *atomic.Int64) {
	var used Used
	defer func() { // also of one that leaves while it waits
		if !w.AtOnce { // the front door tells others
			paid.Served(control.ClientUse{Client: w.Client, Cost: control.Cost(used.Input, used.Output)})
		}
	}()
	for {
		s, err := f.Acquire(ctx, w)
		if err != nil {
			if err == error(ErrElsewhere) && r.IntN(2) == 0 {
				f.Leave(w) // another variant, which is this one
				continue
			}
			return
		}
		if r.IntN(10) == 0 {
			d := time.Duration(r.IntN(15000)) * time.Millisecond
			time.Sleep(d)
			s.Waited(d)
		}
		if r.IntN(10) == 0 {
			s.Move([]string{"192.0.2.2:80", "192.0.2.1:80"}[r.IntN(2)])
		}
		unread.Store(r.IntN(10) == 0)
		ends := time.Now().Add(time.Duration(r.ExpFloat64() * 8 * float64(time.Second)))
		for time.Now().Before(ends) && !pause.Load() && ctx.Err() == nil {
			time.Sleep(70 * time.Millisecond)
		}
		switch {
		case ctx.Err() != nil && r.IntN(2) == 0:
			s.Done(used)
			return
		case pause.Load():
			pauses.Add(1)
			w.Renew()
			pause.Store(false)
			used = Used{Input: 7, Output: used.Output + api.Tokens(r.IntN(100))}
			s.Pause(used)
			continue
		}
		switch r.IntN(8) {
		case 0:
			s.GiveBack("")
		case 1:
			s.GiveBack([]string{api.CodeBusy, api.CodeMoved, api.CodeUnhealthy}[r.IntN(3)])
			if r.IntN(2) == 0 {
				w.Renew()
			}
		default:
			used = Used{Served: r.IntN(4) > 0, Input: used.Input + api.Tokens(r.IntN(50)), Output: used.Output + api.Tokens(r.IntN(900))}
			s.Done(used)
			return
		}
	}
}
