package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

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
		c := b
		c.Client = 4
		enter("first of c", c)
		enter("second of a", a)
		enter("first of b", b)
		urgent := a
		urgent.Priority = 1
		enter("urgent", urgent)
		runs := a
		for _, next := range []struct {
			name string
			turn control.Turn
		}{{"urgent", urgent}, {"first of c", c}, {"first of b", b}, {"second of a", a}} {
			g.LeaveTurn(runs, 100)
			if name := <-got; name != next.name {
				t.Fatalf("%s enters, want %s", name, next.name)
			}
			runs = next.turn
		}
		g.LeaveTurn(runs, 100)
		if running, _ := g.Running(); running != 0 || g.turns.Len() != 0 {
			t.Errorf("%d run and %d wait, want none", running, g.turns.Len())
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
				if running, _ := g.Running(); running != 0 || g.turns.Len() != 0 {
					t.Errorf("%d run, %d wait; want none", running, g.turns.Len())
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
	if running, _ := g.Running(); running != 0 || g.turns.Len() != 0 {
		t.Errorf("%d run and %d wait, want none", running, g.turns.Len())
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
		g.LeaveTurn(without, 5)
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
		if g.shares.Clients() != 0 || g.running != 0 {
			t.Errorf("left are %d clients and %d requests", g.shares.Clients(), g.running)
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
		const begins = 500 * time.Millisecond
		if g.GivesWay(a, begins) {
			t.Error("one gives way although none waits")
		}
		for range 3 {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), b, noWait); refused != nil || err != nil {
					t.Error(refused, err)
				}
			}()
		}
		time.Sleep(4*begins - time.Millisecond)
		if g.GivesWay(a, begins) {
			t.Error("one gives way at once")
		}
		time.Sleep(time.Millisecond)
		for n := range 2 {
			if g.GivesWay(b, begins) || !g.GivesWay(a, begins) {
				t.Errorf("of a, %d give way; or one of b does", n)
			}
			g.LeaveTurn(a, 1)
			synctest.Wait()
		}
		if g.GivesWay(a, begins) {
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

// TestWaitsBeforeCount: of equals the request that has waited longer goes first, also where it waited before it came.
func TestWaitsBeforeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		g.open("http://127.0.0.1:1")
		runs := control.Turn{Client: 9, Most: time.Minute}
		if _, refused, err := g.EnterInTurn(t.Context(), runs, noWait); refused != nil || err != nil {
			t.Fatal(refused, err)
		}
		got := make(chan uint64)
		for _, turn := range []control.Turn{{Client: 2, Most: time.Minute}, {Client: 3, Most: time.Minute, Waited: 3 * time.Second}, {Client: 4, Most: time.Minute, Waited: 2 * time.Second}} {
			go func() {
				if _, refused, err := g.EnterInTurn(t.Context(), turn, noWait); refused != nil || err != nil {
					t.Error(refused, err)
				}
				got <- turn.Client
			}()
			synctest.Wait()
		}
		for _, want := range []uint64{3, 4, 2} {
			g.LeaveTurn(runs, 0)
			runs = control.Turn{Client: <-got}
			if runs.Client != want {
				t.Errorf("client %d goes, want %d", runs.Client, want)
			}
		}
	})
}
