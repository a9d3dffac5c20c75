package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// crowd are requests of one function in virtual time.
type crowd struct {
	t  *testing.T
	f  *Function
	mu sync.Mutex // guards the fields below
	// got are the names of the requests in the order in which they got slots.
	got []string
	// slots are the slots that are not given back.
	slots map[string]*Slot
}

func newCrowd(t *testing.T, slots int) *crowd {
	return &crowd{t: t, f: startFunction(t, slots, nil), slots: map[string]*Slot{}}
}

// ask lets a request wait for a slot; its name begins with its client.
func (c *crowd) ask(name string, change func(*Want)) *Want {
	client, _, _ := strings.Cut(name, "-")
	ctx, w := want(c.t, client, 0)
	if change != nil {
		change(w)
	}
	go c.acquire(ctx, name, w)
	synctest.Wait()
	return w
}

func (c *crowd) acquire(ctx context.Context, name string, w *Want) {
	s, err := c.f.Acquire(ctx, w)
	if errors.Is(err, context.Canceled) {
		return
	}
	if err != nil {
		c.t.Errorf("%s: %v", name, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, name)
	c.slots[name] = s
}

// take returns the slot of a request, which is no longer the crowd's.
func (c *crowd) take(name string) *Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[name]
	delete(c.slots, name)
	return s
}

// done ends a request.
func (c *crowd) done(name string) {
	s := c.take(name)
	w := s.want
	s.Done(Used{Served: true, Input: 1, Output: 1})
	c.f.Leave(w)
	synctest.Wait()
}

// want checks who has got slots since the last check, in this order.
func (c *crowd) want(names ...string) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.got, names) {
		c.t.Errorf("slots went to %v, want %v", c.got, names)
	}
	c.got = nil
}

// left returns a request that has a slot; empty: none has.
func (c *crowd) left() (name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name = range c.slots {
		break
	}
	return name
}

// end ends all requests.
func (c *crowd) end() {
	for name := c.left(); name != ""; name = c.left() {
		c.done(name)
	}
}

// TestNobodyStartsAboveItsShare: the client whose requests have cost the least so far does not get the third of four
// slots while one that has cost more waits below its share. It gets it when nobody else waits.
func TestNobodyStartsAboveItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 4)
		c.ask("b-0", nil)
		c.f.mu.Lock()
		c.f.queue.order.Elsewhere(clientOf(0, "b"), 0, 1e6) // it was served a lot
		c.f.mu.Unlock()
		for n := range 3 {
			c.ask(fmt.Sprint("a-", n), nil)
		}
		c.want("b-0", "a-0", "a-1", "a-2")
		c.ask("a-3", nil)
		c.ask("b-1", nil)
		c.ask("b-2", nil)
		c.done("a-0") // each has two then
		c.want("b-1")
		c.done("a-1")
		c.want("a-3")
		c.done("b-0")
		c.want("b-2")
		c.end()
	})
}

// TestSharesKeepPriorities: a request of a higher priority goes first, though its client has its share.
func TestSharesKeepPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2)
		c.ask("a-0", nil)
		c.ask("a-1", nil)
		c.ask("b-0", nil)
		c.ask("a-2", func(w *Want) { w.Priority = 2 })
		c.done("a-0")
		c.want("a-0", "a-1", "a-2")
		c.end()
	})
}

// TestWhatIsAboveItsShareIsPaused: streams of a client above its share are paused once another has waited for some time,
// the longest-running first and no more than wait. They continue in their turn. Later requests of the other find a slot
// free.
func TestWhatIsAboveItsShareIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 4)
		var paused []string
		for n := range 5 {
			name := fmt.Sprint("a-", n)
			c.ask(name, func(w *Want) {
				w.begins.Store(int64(time.Second / 2))
				w.Pause = func() bool {
					paused = append(paused, name)
					go func() {
						c.take(name).Pause(Used{})
						c.acquire(t.Context(), name, w)
					}()
					return true
				}
			})
			time.Sleep(time.Second)
		}
		c.want("a-0", "a-1", "a-2", "a-3")
		time.Sleep(time.Minute / 2)
		c.want()
		low := c.ask("c-0", func(w *Want) { w.Priority = -1 }) // nothing gives way for a worse priority
		time.Sleep(fair.MostGivesWay + time.Second)
		c.want()
		low.End(context.Canceled)
		c.ask("b-0", nil)
		time.Sleep(2*time.Second - 1)
		c.want()
		time.Sleep(shareEvery)
		c.want("b-0")
		if !slices.Equal(paused, []string{"a-0"}) {
			t.Errorf("paused were %v", paused)
		}
		c.done("b-0") // nobody waits but a
		c.want()
		for n := range 3 { // as if b had the instance for itself
			name := fmt.Sprint("b-", n+1)
			c.ask(name, nil)
			c.want(name)
			c.done(name)
		}
		time.Sleep(restrains)
		c.want("a-0")
		c.done("a-1")
		c.want("a-4")
		c.end()
	})
}

// TestUnreadRequestsEnd: requests are asked to end only while others wait.
func TestUnreadRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		asked := 0
		c.ask("a-0", func(w *Want) {
			w.EndUnread = func() bool {
				if asked++; asked == 2 {
					go c.done("a-0")
				}
				return asked == 2
			}
		})
		time.Sleep(time.Minute)
		if asked > 0 {
			t.Error("it is asked although nobody waits")
		}
		c.ask("b-0", nil)
		time.Sleep(time.Second)
		c.want("a-0", "b-0")
		c.end()
	})
}

// TestSequencesCount: a request of many sequences counts as all slots of its client's share, and is charged for each. Alone
// it runs.
func TestSequencesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 4)
		one, many := &Want{Input: 10, Tokens: 20}, &Want{Input: 10, Tokens: 20, Sequences: 128}
		c.f.mu.Lock()
		if got, want := c.f.outputs.cost(many)-10, 128*(c.f.outputs.cost(one)-10); got != want {
			t.Errorf("the output of 128 sequences costs %g, want %g", got, want)
		}
		c.f.queue.order.Elsewhere(clientOf(0, "b"), 0, 1e9) // it was served a lot
		c.f.mu.Unlock()
		sequences := func(w *Want) { w.Sequences = 128 }
		c.ask("a-0", sequences)
		if turn := c.slots["a-0"].Turn(); turn.Sequences != 128 {
			t.Errorf("the turn has %d sequences", turn.Sequences)
		}
		for n := range 3 {
			c.ask(fmt.Sprint("b-", n), nil)
		}
		c.ask("a-1", sequences)
		c.ask("b-3", nil)
		c.want("a-0", "b-0", "b-1", "b-2")
		c.done("b-0")
		c.want("a-1") // each has its share, and a has cost less
		c.done("b-1")
		c.want("b-3")
		c.end()
		if n := len(c.f.queue.clients) + c.f.queue.shares.Clients(); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
}

// TestNobodyPassesOneThatWaits: while a client leaves a slot free, a request that has just come does not get one for which
// another's waits.
func TestNobodyPassesOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		c.ask("a-0", nil)
		c.ask("b-0", nil)
		c.f.mu.Lock()
		c.f.restrained.add("a", time.Now())
		c.slots["a-0"].release(0) // and nobody has handed it on yet
		c.f.mu.Unlock()
		c.ask("c-0", nil)
		c.want("a-0")
		c.f.dispatch()
		c.want("b-0")
		c.take("a-0")
		c.done("b-0")
		c.want("c-0")
		c.end()
	})
}

// TestLeavesWhilePaused: a client that leaves while its stream is paused has been charged for it, and one that stays is
// charged once.
func TestLeavesWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paid := &tally{sum: map[string]float64{}}
		f := startFunction(t, 1, nil)
		f.q.cfg.Others = paid
		for _, stays := range []bool{false, true} {
			clear(paid.sum)
			ctx, w := want(t, "a", 0)
			s, err := f.Acquire(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			u := Used{Served: true, Input: 10, Output: 20}
			s.Pause(u)
			if got := paid.sum["a"]; got != control.Cost(10, 20) {
				t.Errorf("stays %v: %g are charged for the part, want %g", stays, got, control.Cost(10, 20))
			}
			if stays {
				if s, err = f.Acquire(ctx, w); err != nil {
					t.Fatal(err)
				}
				u.Output = 50
				s.Done(u)
			}
			f.Leave(w)
			if got, want := paid.sum["a"], control.Cost(u.Input, u.Output); got != want {
				t.Errorf("stays %v: %g are charged, want %g", stays, got, want)
			}
		}
	})
}
