package supervise_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// mover is a runtime that ends its requests when told to move.
type mover struct {
	*world
	end func() // its requests leave
}

func (m *mover) Move(ctx context.Context, e api.Endpoint, level api.Level) error {
	m.call(fmt.Sprintf("move to level %d", level))
	m.end()
	return m.Sleep(ctx, e, level)
}

// TestMove: movable requests are ended as soon as no others are left.
func TestMove(t *testing.T) {
	w := &world{traits: inPlace}
	m := &mover{world: w}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		gate := s.Gate()
		m.end = func() {
			if !gate.Moving() {
				t.Error("the requests are ended, and the gate does not say why")
			}
			gate.Movable(false)
			gate.Leave()
		}
		enter := func(movable bool) {
			t.Helper()
			if _, refused := gate.Enter(); refused != nil {
				t.Fatal(refused)
			}
			if movable {
				gate.Movable(true)
			}
		}
		move := func(epoch uint64, drain time.Duration) <-chan error {
			return later(func() error {
				_, err := s.Sleep(context.Background(), control.SleepRequest{Level: 1, Epoch: epoch, Drain: drain, Move: true})
				return err
			})
		}
		w.made()
		w.states()
		enter(true)
		wantCode(t, "a move of all there is", <-move(2, 0), "")
		wantStates(t, w, "draining asleep1")
		wantCalls(t, w, "move to level 1", "sleep 1")
		wantCode(t, "wake", wake(s, 3), "")
		if gate.Moving() {
			t.Error("awake again, it still moves")
		}

		enter(true)
		enter(false)
		w.made()
		moved := move(4, 0)
		wantCalls(t, w)
		gate.Leave() // the one that can't move has ended
		wantCode(t, "a move after a drain", <-moved, "")
		wantCalls(t, w, "move to level 1", "sleep 1")
		wantCode(t, "wake", wake(s, 5), "")

		enter(true)
		enter(false)
		w.made()
		w.states()
		wantCode(t, "a move that one request is in the way of", <-move(6, 3*second), api.CodeBusy)
		wantStates(t, w, "draining awake")
		wantCalls(t, w)
		gate.Leave()

		enter(true) // with the other one that can move
		drained := later(func() error { return sleep(s, 7, 1, second) })
		wantCode(t, "a drain that is no move", <-drained, api.CodeBusy)
		wantCalls(t, w)
		gate.Movable(false)
		gate.Leave()

		moved = move(8, 0)
		wantCode(t, "a move", <-moved, "")
		wantCode(t, "wake", wake(s, 9), "")
		enter(true)
		w.made()
		if _, err := s.Stop(context.Background(), control.StopRequest{Drain: time.Hour, Move: true}); err != nil {
			t.Error(err)
		}
		wantCalls(t, w, "move to level 2", "sleep 2", "stop 100 after 5s")
	}, func(c *supervise.Config) { c.Runtime = m })
}

// TestMoveOfOthers: a runtime that can't move drains.
func TestMoveOfOthers(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_, _ = s.Gate().Enter()
		s.Gate().Movable(true)
		w.states()
		slept := later(func() error {
			_, err := s.Sleep(context.Background(), control.SleepRequest{Level: 1, Epoch: 2, Move: true})
			return err
		})
		synctest.Wait()
		wantStates(t, w, "draining")
		s.Gate().Movable(false)
		s.Gate().Leave()
		wantCode(t, "sleep", <-slept, "")
	})
}
