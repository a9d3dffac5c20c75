package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// noWaker wakes nothing.
type noWaker struct{}

func (noWaker) Wake(context.Context, api.Endpoint, api.Grant) (api.InstanceStatus, error) {
	return api.InstanceStatus{}, errors.New("no wake is expected")
}

// startFunction returns the function m with one awake instance of some slots.
func startFunction(t *testing.T, slots int, change func(*api.Function)) *Function {
	t.Helper()
	m, err := metrics.New(prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	q := New(Config{Name: "test", Emitter: api.EmitterFunc(func(api.Event) {}), Waker: noWaker{}, Metrics: m, Tracer: waketrace.NewTracer(nil), Renamed: func() {}, Log: slog.New(slog.DiscardHandler)})
	spec := api.Function{Name: "default/m", Concurrency: slots}
	if change != nil {
		change(&spec)
	}
	q.PutFunction(spec)
	q.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: spec.Name, State: api.Awake, PID: 7, Seq: 1, Endpoint: "http://192.0.2.1:80", Since: time.Now()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return q.known(spec.Name)
}

// want describes a request of a client that ends with the returned context.
func want(t *testing.T, client string, priority int) (context.Context, *Want) {
	ctx, cancel := context.WithCancelCause(t.Context())
	return ctx, &Want{Client: client, Priority: priority, Begun: time.Now(), End: cancel}
}

// acquireLater acquires a slot for a request that has to wait, and returns where the slot is sent.
func acquireLater(t *testing.T, ctx context.Context, f *Function, w *Want) <-chan *Slot {
	got := make(chan *Slot)
	go func() {
		s, err := f.Acquire(ctx, w)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	synctest.Wait()
	return got
}

// TestGivenBackKeepsItsPlace: a request whose instance gave it back goes before the ones that wait.
func TestGivenBackKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, nil)
		ctx, first := want(t, "a", 0)
		s, err := f.Acquire(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		acquire := func(name string, ctx context.Context, w *Want) {
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			order <- name
			s.Done(Used{Served: true, Input: 1, Output: 1})
			f.Leave(w)
		}
		ctx2, second := want(t, "b", 0)
		go acquire("second", ctx2, second)
		synctest.Wait()
		s.GiveBack(api.CodeBusy)
		go acquire("first", ctx, first)
		if got := <-order + " " + <-order; got != "first second" {
			t.Errorf("the order is %s", got)
		}
		if held, woke, waited := second.Waited(); !waited || held == 0 || woke != 0 {
			t.Errorf("the second waited for %s, %s of it without an awake instance", held, woke)
		}
		if a := f.Activity(); a.Running != 0 || a.Waiting != 0 || len(f.wants) != 0 {
			t.Errorf("left are %+v, and %d requests", a, len(f.wants))
		}
	})
}

// TestShedding: a request that waits ends the latest one of the lowest priority, which holds its slot until it is done.
func TestShedding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 2, func(spec *api.Function) { spec.Hold.EvictSheddable = true })
		var running [2]*Slot
		var ends [2]context.Context
		for n, priority := range []int{-1, -2} {
			ctx, w := want(t, "a", priority)
			w.Background = true
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			running[n], ends[n] = s, ctx
		}
		if d := f.level(); d.Running != 0 || d.Background != 2 || !d.LastRequest.IsZero() {
			t.Errorf("the demand of background requests is %+v", d)
		}
		got := make(chan *Slot)
		ctx, w := want(t, "b", 0)
		go func() {
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
		<-ends[1].Done()
		var cause *api.Error
		if !errors.As(context.Cause(ends[1]), &cause) || cause.Code != CodeEvicted || ends[0].Err() != nil {
			t.Errorf("ended with %v and %v", context.Cause(ends[1]), context.Cause(ends[0]))
		}
		running[1].Done(Used{})
		(<-got).Done(Used{Served: true})
		running[0].Done(Used{})
		if f.background != 0 || f.slots != 0 {
			t.Errorf("left are %d background requests and %d slots", f.background, f.slots)
		}
	})
}

// TestDrainEndsBackground: an instance that drains waits for no background request.
func TestDrainEndsBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 2, nil)
		var slots [2]*Slot
		var ends [2]context.Context
		told := 0
		for n := range slots {
			ctx, w := want(t, "a", 0)
			w.Drains = func() { told++ }
			w.Background = n == 0
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			slots[n], ends[n] = s, ctx
		}
		f.q.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: api.Draining, PID: 7, Seq: 2, Endpoint: "http://192.0.2.1:80", Since: time.Now()})
		var cause *api.Error
		if !errors.As(context.Cause(ends[0]), &cause) || cause.Code != CodeEvicted || ends[1].Err() != nil {
			t.Errorf("ended with %v and %v, want the first evicted", context.Cause(ends[0]), context.Cause(ends[1]))
		}
		for _, s := range slots {
			s.Done(Used{})
		}
		if told != 2 {
			t.Errorf("%d requests were told, want both", told)
		}
	})
}

// TestEndAll: waiting and running requests end, each with the reason.
func TestEndAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, nil)
		ctx, w := want(t, "a", 0)
		s, err := f.Acquire(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan error)
		go func() {
			ctx, w := want(t, "b", 0)
			_, err := f.Acquire(ctx, w)
			waits <- err
		}()
		synctest.Wait()
		reason := api.Errorf(503, api.CodeShutdown, "shutting down")
		f.EndAll(reason)
		if err := <-waits; !errors.Is(err, reason) || !errors.Is(context.Cause(ctx), reason) {
			t.Errorf("ended with %v and %v", err, context.Cause(ctx))
		}
		s.Done(Used{})
	})
}

// TestGenerated: an unfinished answer is estimated at the output of others in that time, of which short ones count little, and at most
// the requested tokens.
func TestGenerated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, nil)
		generated := func(asked api.Tokens, after time.Duration, u Used) api.Tokens {
			ctx, w := want(t, "c", 0)
			w.Input, w.Tokens = 7, 7+asked
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Leave(w)
			defer s.Done(u)
			time.Sleep(after)
			return s.Generated()
		}
		if got := generated(0, time.Second, Used{}); got != usualOutput {
			t.Errorf("%d tokens where no answer has come, want %d", got, usualOutput)
		}
		for range 100 { // a token takes 10 ms, and a prompt half a second
			generated(0, 10500*time.Millisecond, Used{Served: true, Output: 1000})
			generated(0, 510*time.Millisecond, Used{Served: true, Output: 1})
		}
		for asked, want := range map[api.Tokens]api.Tokens{0: 200, 400: 200, 60: 60} {
			if got := generated(asked, 2*time.Second, Used{}); got < want*9/10 || got > want {
				t.Errorf("%d tokens of %d, want about %d", got, asked, want)
			}
		}
	})
}

// TestWakesAreCharged: the client whose request begins a wake pays for it, and another goes first after that.
func TestWakesAreCharged(t *testing.T) {
	for name, leaves := range map[string]bool{"it stays": false, "it leaves": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFunction(t, 1, nil)
				order := make(chan string, 9)
				ask := func(ctx context.Context, client string, w *Want) {
					s, err := f.Acquire(ctx, w)
					if err == nil {
						order <- client
						time.Sleep(time.Second)
						s.Done(Used{Served: true, Input: 1, Output: 100})
					}
					f.Leave(w)
				}
				begin := func(client string) *Want {
					ctx, w := want(t, client, 0)
					go ask(ctx, client, w)
					synctest.Wait()
					return w
				}
				begin("c")
				time.Sleep(2 * time.Second)
				report := func(seq uint64, s api.State) {
					f.q.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: s, PID: 7, Seq: seq, Endpoint: "http://192.0.2.1:80", Since: time.Now()})
				}
				report(2, api.Asleep)
				waker := begin("a")
				time.Sleep(5 * time.Second)
				if leaves {
					waker.End(context.Canceled)
					synctest.Wait()
				}
				begin("c")
				report(3, api.Awake)
				for range 2 {
					begin("b")
					begin("a")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				close(order)
				got := ""
				for client := range order {
					got += client
				}
				want := map[bool]string{false: "cacbbaa", true: "ccbbaa"}[leaves]
				if got != want {
					t.Errorf("they are served in the order %s, want %s", got, want)
				}
			})
		})
	}
}

// TestTurnsAtTheInstance checks three rules for requests that wait at an instance. An instance at which a request
// waited gets more requests than it has slots. An instance that gave no turn is not avoided. The wait there counts as a
// wait in the queue.
func TestTurnsAtTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, func(spec *api.Function) { spec.Hold.Timeout = time.Minute })
		ctx, first := want(t, "a", 0)
		s, err := f.Acquire(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		turn := s.Turn()
		if _, second := want(t, "b", 0); turn.Client == 0 || turn.Client == clientOf(0, second.Client).Name {
			t.Errorf("the client is %x", turn.Client)
		}
		ctx2, second := want(t, "b", 0)
		got := acquireLater(t, ctx2, f, second)
		s.Waited(50 * time.Second)
		other := <-got // beside the first
		s.Waited(20 * time.Second)
		s.GiveBack("")
		if f.set.NextTry(time.Now()) != (time.Time{}) {
			t.Error("the instance is avoided")
		}
		var refused *api.Error
		if _, err := f.Acquire(ctx, first); !errors.As(err, &refused) || refused.Code != CodeHoldTimeout {
			t.Errorf("got %v, want a refusal after 70 s", err)
		}
		if held, woke, _ := first.Waited(); held != 70*time.Second || woke != 0 {
			t.Errorf("it waited for %s, %s of it without an awake instance", held, woke)
		}
		other.Done(Used{Served: true})
		time.Sleep(sharedEnds)
		ctx, third := want(t, "c", 0)
		if s, err = f.Acquire(ctx, third); err != nil {
			t.Fatal(err)
		}
		_, fourth := want(t, "d", 0)
		fourth.AtOnce = true
		if _, err := f.Acquire(ctx, fourth); err == nil {
			t.Error("an instance that is not shared any more takes more requests than it has slots")
		}
		s.Done(Used{})
	})
}

// sharedEnds is when an instance no longer counts as shared.
const sharedEnds = 3 * time.Second

// TestAnsweredTooLate: the slot of an instance that answers a request whose client has just left goes to one that waits.
func TestAnsweredTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, nil)
		left, leave := context.WithCancel(t.Context())
		leave()
		e := &entry{Client: "a"}
		e.Until(left)
		f.mu.Lock()
		_, _, _ = f.queue.Enter(e, time.Now(), 0)
		i := f.set.All()[0]
		f.mu.Unlock()
		ctx, w := want(t, "b", 0)
		got := acquireLater(t, ctx, f, w)
		f.answered(e, i)
		(<-got).Done(Used{})
		if held, _, _ := w.Waited(); held != 0 {
			t.Errorf("it waited for another %s", held)
		}
	})
}

// TestRemovedStaysAway: what the instances of a removed function still report does not bring it back, until it is
// declared again.
func TestRemovedStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFunction(t, 1, nil)
		q := f.q
		q.RemoveFunction(f.Name)
		st := api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: api.Draining, PID: 7, Seq: 2, Endpoint: "http://192.0.2.1:80", Since: time.Now()}
		q.ObserveInstance(st)
		q.Hold(f.Name, st.Instance, 1)
		late := st
		late.Instance, late.State, late.Seq = "m-0002", api.Starting, 1 // never seen before
		q.ObserveInstance(late)
		q.Hold(f.Name, late.Instance, 1)
		q.Grant(api.Grant{Instance: late.Instance, Function: f.Name, Epoch: 1, Expires: time.Now().Add(time.Hour)})
		q.Fail(f.Name, api.Errorf(503, api.CodeStartFailed, "it does not start"))
		q.Expect(f.Name, time.Second, time.Second)
		if all := q.All(); len(all) != 0 {
			t.Errorf("an instance that drains brings back %s", all[0].Name)
		}
		q.PutFunction(api.Function{Name: f.Name})
		st.Seq, st.State = 3, api.Awake
		q.ObserveInstance(st)
		if st, found := q.known(f.Name).Best(); !found || st.State != api.Awake {
			t.Errorf("after the function is declared again, its instance is %q, want awake", st.State)
		}
		q.RemoveFunction(f.Name)
		st.Seq, st.State = 4, api.Gone
		q.ObserveInstance(st)
		if all := q.All(); len(all) != 0 {
			t.Errorf("the end of an instance brings back %s", all[0].Name)
		}
	})
}

// TestRemovedNamesAreBounded: the names of removed functions are forgotten once they are many.
func TestRemovedNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startFunction(t, 1, nil).q
		for n := range mostRemoved + 1 {
			name := api.FunctionName(fmt.Sprint("default/m-", n))
			q.PutFunction(api.Function{Name: name})
			q.RemoveFunction(name)
		}
		if len(q.removed) != 1 {
			t.Errorf("%d names are kept, want the last one", len(q.removed))
		}
	})
}
