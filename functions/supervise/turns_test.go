package supervise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestTurnsAgainstSlowTwin compares the order with a list that is searched each time.
func TestTurnsAgainstSlowTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q turns
	costs, pending := map[uint64]float64{}, map[uint64]int{}
	var waiting, running []*turn
	floor := 0.0
	arrive := func(client uint64) {
		if pending[client]++; pending[client] > 1 {
			return
		}
		least := floor
		for n, w := range waiting {
			if n == 0 || costs[w.Client] < least {
				least = costs[w.Client]
			}
		}
		costs[client] = max(costs[client], least)
	}
	leave := func(client uint64, correct float64) {
		costs[client] += correct
		if pending[client]--; pending[client] == 0 && costs[client] <= floor {
			delete(costs, client)
		}
	}
	admit := func(w *turn) {
		floor = max(floor, costs[w.Client])
		costs[w.Client] += w.Cost
		running = append(running, w)
	}
	for step := range 20_000 {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		w := &turn{Turn: control.Turn{Client: r.Uint64N(5) + 2, Priority: r.IntN(4) - 1, Cost: float64(r.IntN(100))}, arrived: now}
		switch op := r.IntN(5); {
		case op == 0: // it gets a slot at once
			q.arrive(w.Client)
			q.charge(w.Turn)
			arrive(w.Client)
			admit(w)
		case op == 1:
			q.add(w)
			arrive(w.Client)
			waiting = append(waiting, w)
		case op == 2 && len(waiting) > 0: // it leaves
			i := r.IntN(len(waiting))
			if !q.remove(waiting[i]) || q.remove(waiting[i]) {
				t.Fatalf("step %d: a request that waits was not removed, or twice", step)
			}
			leave(waiting[i].Client, 0)
			waiting = slices.Delete(waiting, i, i+1)
		case op == 3 && len(running) > 0:
			i, correct := r.IntN(len(running)), float64(r.IntN(20)-10)
			q.leave(running[i].Client, correct)
			leave(running[i].Client, correct)
			running = slices.Delete(running, i, i+1)
		case op == 4 && len(waiting) > 0:
			want := slices.MinFunc(waiting, func(a, b *turn) int { return twinOrder(a, b, waiting, costs) })
			got := q.next()
			if got != want {
				t.Fatalf("step %d: %+v is next, want %+v of %v", step, got, want, costs)
			}
			q.admit(got)
			admit(got)
			waiting = slices.DeleteFunc(waiting, func(o *turn) bool { return o == got })
		}
		if len(q.clients) != len(costs) {
			t.Fatalf("step %d: %d clients are remembered, want %d", step, len(q.clients), len(costs))
		}
		for client := range costs {
			if q.clients[client] == nil || q.clients[client].cost != costs[client] {
				t.Fatalf("step %d: client %d has %+v, want %v", step, client, q.clients[client], costs[client])
			}
		}
	}
}

// twinOrder orders two requests among all that wait: the first ones of their priorities by when they are due, and each
// other request after the first one of its priority.
func twinOrder(a, b *turn, waiting []*turn, costs map[uint64]float64) int {
	leads := func(t *turn) bool {
		return !slices.ContainsFunc(waiting, func(o *turn) bool {
			return o.Priority == t.Priority && (costs[o.Client] < costs[t.Client] || costs[o.Client] == costs[t.Client] && o.arrived.Before(t.arrived))
		})
	}
	switch {
	case leads(a) && !leads(b):
		return -1
	case leads(b) && !leads(a):
		return 1
	}
	due := func(t *turn) time.Time { return t.arrived.Add(-control.Aging * time.Duration(t.Priority)) }
	if c := due(a).Compare(due(b)); c != 0 {
		return c
	}
	return b.Priority - a.Priority
}

// TestTurnsForgetClients: clients without requests are bounded.
func TestTurnsForgetClients(t *testing.T) {
	var q turns
	for client := range uint64(3 * maxClients) {
		q.arrive(client + 1)
		q.charge(control.Turn{Client: client + 1, Cost: 1})
		q.leave(client+1, 100)
	}
	if n := len(q.clients); n > maxClients+1 {
		t.Errorf("%d clients are remembered", n)
	}
}

func noWait() error { return nil }

// TestEnterInTurn: the least-served client's request gets the slot that becomes free, though another came first.
func TestEnterInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		g.open("http://127.0.0.1:1")
		a, b := control.Turn{Client: 3, Cost: 100, Most: time.Minute}, control.Turn{Client: 2, Cost: 100, Most: time.Minute}
		if base, refused, err := g.EnterInTurn(t.Context(), a, func() error { t.Error("it waits"); return nil }); base != "http://127.0.0.1:1" || refused != nil || err != nil {
			t.Fatal(base, refused, err)
		}
		got := make(chan string)
		enter := func(name string, turn control.Turn) {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), turn, noWait); refused != nil || err != nil {
					name = fmt.Sprint(refused, err)
				}
				got <- name
			}()
			synctest.Wait()
		}
		enter("second of a", a)
		enter("first of b", b)
		urgent := a
		urgent.Priority = 1
		enter("urgent", urgent)
		for _, want := range []string{"urgent", "first of b", "second of a"} {
			g.LeaveTurn(a, 100)
			if name := <-got; name != want {
				t.Errorf("%s enters, want %s", name, want)
			}
		}
		g.LeaveTurn(a, 100)
		if running, _ := g.Running(); running != 0 || len(g.turns.waiting) != 0 {
			t.Errorf("%d run and %d wait, want none", running, len(g.turns.waiting))
		}
	})
}

// TestWaitForATurnEnds: a request that waits is refused when the gate is shut or its time is up, and leaves with its
// client or when it can't be prepared. None keeps a slot.
func TestWaitForATurnEnds(t *testing.T) {
	broken := errors.New("it can't be read")
	for _, test := range []struct {
		name  string
		end   func(g *Gate, cancel context.CancelFunc)
		wait  func() error
		code  string
		err   error
		after time.Duration
	}{
		{name: "shut", end: func(g *Gate, _ context.CancelFunc) { g.shut(refusal(api.Draining, false), reopening{}) }, code: api.CodeDraining},
		{name: "not ready", end: func(g *Gate, _ context.CancelFunc) {
			g.setReady(api.Errorf(503, api.CodeUnhealthy, "not ready"))
		}, code: api.CodeUnhealthy},
		{name: "late", code: api.CodeBusy, after: control.MaxTurn},
		{name: "gone", end: func(_ *Gate, cancel context.CancelFunc) { cancel() }, err: context.Canceled},
		{name: "broken", wait: func() error { return broken }, err: broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(1)
				g.open("http://127.0.0.1:1")
				turn := control.Turn{Client: 3, Most: time.Minute}
				if _, refused, err := g.EnterInTurn(t.Context(), turn, noWait); refused != nil || err != nil {
					t.Fatal(refused, err)
				}
				if test.wait == nil {
					test.wait = noWait
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, refused, err := g.EnterInTurn(ctx, turn, test.wait)
					if code := ""; refused != nil || test.code != "" {
						if refused != nil {
							code = refused.Code
						}
						if code != test.code {
							t.Errorf("refused with %q, want %q", code, test.code)
						}
					}
					if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
						t.Errorf("got %v, want %v", err, test.err)
					}
					if took := time.Since(began); took != test.after {
						t.Errorf("after %s, want %s", took, test.after)
					}
				}()
				synctest.Wait()
				if test.end != nil {
					test.end(g, cancel)
				}
				<-done
				g.LeaveTurn(turn, 0)
				if running, _ := g.Running(); running != 0 || len(g.turns.waiting) != 0 || len(g.turns.clients) != 0 {
					t.Errorf("%d run, %d wait, %d clients; want none", running, len(g.turns.waiting), len(g.turns.clients))
				}
			})
		})
	}
}

// TestTurnAndCancelAtOnce: a request whose client leaves while it is admitted gives the slot back.
func TestTurnAndCancelAtOnce(t *testing.T) {
	g := newGate(1)
	g.open("http://127.0.0.1:1")
	turn := control.Turn{Client: 3, Most: time.Minute}
	for range 2000 {
		if _, refused, err := g.EnterInTurn(t.Context(), turn, noWait); refused != nil || err != nil {
			t.Fatal(refused, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, refused, err := g.EnterInTurn(ctx, turn, noWait); refused == nil && err == nil {
				g.LeaveTurn(turn, 0)
			}
		}()
		go cancel()
		g.LeaveTurn(turn, 0)
		<-done
	}
	if running, _ := g.Running(); running != 0 || len(g.turns.waiting) != 0 {
		t.Errorf("%d run and %d wait, want none", running, len(g.turns.waiting))
	}
}

// TestWithoutATurn: a request without a turn waits only while others do, and then has one like they have.
func TestWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		g.open("http://127.0.0.1:1")
		without, a := control.Turn{Client: control.NoClient, Most: time.Minute, Cost: 1}, control.Turn{Client: 3, Most: time.Minute, Cost: 1}
		if _, refused, err := g.EnterInTurn(t.Context(), a, noWait); refused != nil || err != nil {
			t.Fatal(refused, err)
		}
		if _, refused, err := g.EnterInTurn(t.Context(), without, noWait); refused == nil || refused.Code != api.CodeBusy || err != nil {
			t.Errorf("got %v, %v, want a refusal at once", refused, err)
		}
		entered := make(chan string)
		enter := func(name string, turn control.Turn) {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), turn, noWait); refused != nil || err != nil {
					t.Error(name, refused, err)
				}
				entered <- name
			}()
			synctest.Wait()
		}
		enter("a", a)
		enter("without", without)
		g.LeaveTurn(a, 5)
		first := <-entered
		g.LeaveTurn(a, 5)
		if second := <-entered; first != "without" || second != "a" {
			t.Errorf("the order is %s, %s", first, second)
		}
	})
}

// TestSlotsAreShared: the client that was served the least does not get a third of four slots while another waits below
// its share. A request of many sequences counts as all slots.
func TestSlotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4)
		g.open("http://127.0.0.1:1")
		turnOf := func(client uint64, sequences int) control.Turn {
			return control.Turn{Client: client, Most: time.Minute, Cost: 1, Sequences: sequences}
		}
		var got []string
		enter := func(name string, turn control.Turn) {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), turn, func() error { return nil }); refused != nil || err != nil {
					t.Error(refused, err)
				}
				got = append(got, name)
			}()
			synctest.Wait()
		}
		leave := func(turn control.Turn) { g.LeaveTurn(turn, turn.Cost); synctest.Wait() }
		check := func(names ...string) {
			t.Helper()
			if !slices.Equal(got, names) {
				t.Errorf("slots went to %v, want %v", got, names)
			}
			got = nil
		}
		a, b := turnOf(3, 0), turnOf(4, 0)
		b.Cost = 1e6
		for _, name := range []string{"a", "a", "a"} {
			enter(name, a)
		}
		enter("b", b)
		check("a", "a", "a", "b")
		enter("a", a)
		enter("b", b)
		enter("b", b)
		leave(a)
		check("b")
		leave(a)
		check("a")
		leave(b)
		check("b")
		for range 2 {
			leave(a)
			leave(b)
		}
		many, other := turnOf(5, 2048), turnOf(6, 0) // the share of many is full with one
		for _, turn := range []control.Turn{many, b, other, other} {
			enter(fmt.Sprint(turn.Client), turn)
		}
		check("5", "4", "6", "6")
		enter("many", many)
		enter("b", b)
		leave(other)
		check("b")
		leave(other)
		check("many")
		for range 2 {
			leave(many)
			leave(b)
		}
		if g.turns.active != 0 || g.running != 0 {
			t.Errorf("left are %d clients and %d requests", g.turns.active, g.running)
		}
	})
}

// TestGivesWay: a client's requests run on all slots. Once another one's has waited for some time, one of them gives way for
// it, and none of a client that has its share.
func TestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4)
		g.open("http://127.0.0.1:1")
		a, b := control.Turn{Client: 3, Most: time.Minute}, control.Turn{Client: 4, Most: time.Minute}
		noWait := func() error { return nil }
		for range 4 {
			if _, refused, err := g.EnterInTurn(t.Context(), a, noWait); refused != nil || err != nil {
				t.Fatal(refused, err)
			}
		}
		if g.GivesWay(a) {
			t.Error("one gives way although none waits")
		}
		for range 3 {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), b, noWait); refused != nil || err != nil {
					t.Error(refused, err)
				}
			}()
		}
		time.Sleep(aboveFor - time.Second)
		if g.GivesWay(a) {
			t.Error("one gives way at once")
		}
		time.Sleep(2 * time.Second)
		for n := range 2 {
			if g.GivesWay(b) || !g.GivesWay(a) {
				t.Errorf("of a, %d give way; or one of b does", n)
			}
			g.LeaveTurn(a, 1)
			synctest.Wait()
		}
		if g.GivesWay(a) {
			t.Error("one gives way of a client that has its share")
		}
		for range 2 {
			g.LeaveTurn(a, 1)
			synctest.Wait()
			g.LeaveTurn(b, 1)
		}
		g.LeaveTurn(b, 1)
		if g.running != 0 {
			t.Errorf("%d run", g.running)
		}
	})
}
