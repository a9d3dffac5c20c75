package supervise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestNothingIsLeft: whatever requests do while the gate opens and shuts, no slot, turn or share is left once they have
// ended, and no more run than may.
func TestNothingIsLeft(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { nothingIsLeft(t, seed) })
		})
	}
}

func nothingIsLeft(t *testing.T, seed uint64) {
	g := newGate(3)
	var all, world sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for range 40 {
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(40))*time.Second)
				pass(ctx, t, g, r, n)
				cancel()
			}
		})
	}
	over := make(chan struct{})
	world.Go(func() {
		r := rand.New(rand.NewPCG(seed, 99))
		for {
			g.open("http://127.0.0.1:1")
			select {
			case <-over:
				return
			case <-time.After(time.Duration(r.IntN(60)) * time.Second):
			}
			if r.IntN(3) == 0 {
				g.setReady(api.Errorf(503, api.CodeUnhealthy, "not ready"))
				time.Sleep(time.Second)
				g.setReady(nil)
				continue
			}
			idle := g.shut(refusal(api.Draining, false), reopening{})
			select {
			case <-idle:
			case <-time.After(5 * time.Second):
			}
		}
	})
	all.Wait()
	close(over)
	world.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != 0 || g.turns.Len() != 0 || g.shares.Clients() != 0 || g.movables != 0 {
		t.Errorf("%d run, %d wait, %d can move, and the clients are %v", g.running, g.turns.Len(), g.movables, g.shares)
	}
}

// pass is one request.
func pass(ctx context.Context, t *testing.T, g *Gate, r *rand.Rand, n int) {
	turn := control.Turn{Source: uint64(n % 2), Client: uint64(2 + n%5), Priority: r.IntN(3) - 1, Cost: 100, Most: time.Duration(r.IntN(20)) * time.Second, Sequences: r.IntN(6)}
	leave := func() { g.LeaveTurn(turn, float64(r.IntN(900))) }
	var refused *api.Error
	var err error
	switch r.IntN(8) {
	case 0:
		leave = g.Leave
		_, refused = g.Enter()
	case 1:
		leave = g.Leave
		_, refused = g.EnterProbe()
	case 2:
		turn = control.Turn{Client: control.NoClient, Most: control.MaxTurn}
		fallthrough
	default:
		_, refused, err = g.EnterInTurn(ctx, turn, func() error {
			if r.IntN(20) == 0 {
				return errors.New("its body can't be read")
			}
			return nil
		})
	}
	if refused != nil || err != nil {
		return
	}
	if running, _ := g.Running(); running > 3 {
		t.Errorf("%d run", running)
	}
	movable := r.IntN(2) == 0
	if movable {
		g.Movable(true)
	}
	for range r.IntN(200) {
		time.Sleep(100 * time.Millisecond)
		if movable && (g.GivesWay(turn, 0) || g.Moving()) || ctx.Err() != nil {
			break
		}
	}
	if movable {
		g.Movable(false)
	}
	leave()
}
