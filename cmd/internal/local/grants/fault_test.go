package grants

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// fate is the fault of a part at a point.
type fate int

const (
	nothing    fate = iota
	killCore        // the autoscaler ends; another one begins
	freezeCore      // the autoscaler stands still while another one leads, and then acts late
	killDoor        // the activator ends, and so do the requests in it; another one begins
	cutDoor         // the activator and the autoscaler don't reach one another for a while; both reach the instances
	killFirst       // an instance ends
	killSecond
)

func (f fate) String() string {
	return [...]string{"nothing", "the autoscaler is killed", "the autoscaler is paused", "the activator is killed", "the activator is cut off", "the first instance dies", "the second instance dies"}[f]
}

// pass is a point that a message of c's or d's passes. false: its sender or receiver is
// not there any more.
func (w *world) pass(c *core, d *door, format string, args ...any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c != nil && c.dead || d != nil && d.dead {
		return false
	}
	w.note(format, args...)
	if w.passed++; w.passed == w.at {
		w.note("HERE %s", w.fate)
		w.strike()
	}
	for c != nil && c.frozen != nil {
		frozen := c.frozen
		w.mu.Unlock()
		<-frozen
		w.mu.Lock()
	}
	return (c == nil || !c.dead) && (d == nil || !d.dead)
}

// strike makes the fate happen. w.mu is held.
func (w *world) strike() {
	switch w.fate {
	case killCore:
		w.core.dead = true
		w.core.stop()
		w.newCore()
	case freezeCore:
		old, goesOn := w.core, make(chan struct{})
		old.frozen = goesOn
		w.newCore()
		w.wg.Go(func() {
			time.Sleep(700 * time.Millisecond) // it acts late, ...
			w.mu.Lock()
			w.note("%s goes on", old.name)
			old.frozen = nil
			close(goesOn)
			w.mu.Unlock()
			time.Sleep(2 * time.Second) // ... and only then sees that it does not lead
			w.mu.Lock()
			old.dead = true
			w.mu.Unlock()
			old.stop()
		})
	case killDoor:
		w.door.dead = true
		w.door.stop()
		w.newDoor()
	case cutDoor:
		w.cut = true
		w.wg.Go(func() {
			time.Sleep(2 * time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cut = false
			w.note("the activator is back")
			for _, i := range w.instances {
				i.s.Seq++
				w.report(i.s)
			}
		})
	case killFirst, killSecond:
		for _, i := range w.instances {
			if i.f == functionName(int(w.fate-killFirst)) {
				i.die()
				return
			}
		}
	}
}

// play runs the two functions in turns, with a fate at a point. It returns how many points
// there were, and what went wrong and how; empty: nothing. Lawless instances obey any epoch.
func play(t *testing.T, f fate, at int, lawless bool) (points int, broken string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, instances: map[api.InstanceID]*server{}, fate: f, at: at, lawless: lawless}
		w.mu.Lock()
		for i := range instances {
			w.add(instanceID(i), functionName(i), api.Asleep, 1)
		}
		w.newDoor()
		w.newCore()
		w.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		var clients sync.WaitGroup
		for k, which := range []int{0, 1, 0, 1, 1, 0} { // each wakes one and has the other make room
			clients.Go(func() { w.ask(which) })
			if k == 2 {
				clients.Go(func() { w.ask(1 - which) }) // both at once
			}
			time.Sleep(400 * time.Millisecond)
		}
		clients.Wait()
		took := time.Since(epochOfBubbles)
		w.mu.Lock()
		points = w.passed
		w.at = 0
		w.core.stop()
		w.door.stop()
		w.core.dead, w.door.dead = true, true
		w.mu.Unlock()
		w.wg.Wait()
		if w.over != "" || len(w.lost) > 0 || took > time.Minute {
			broken = fmt.Sprintf("%s at point %d: broken: %q, lost: %q, all answered after %s\n%s", f, at, w.over, w.lost, took, strings.Join(w.trail, "\n"))
		}
	})
	return points, broken
}

// TestAFaultAtEachPoint strikes each part at each point of some wakes: every call and
// every message, before it and after it. The device never has two, and no client is
// without its answer.
func TestAFaultAtEachPoint(t *testing.T) {
	begun, runs := time.Now(), 0
	calm, broken := play(t, nothing, 0, false)
	if broken != "" {
		t.Fatal(broken)
	}
	step := 1
	if testing.Short() {
		step = 5
	}
	for f := killCore; f <= killSecond; f++ {
		for at := 1; at <= calm; at += step {
			if _, broken := play(t, f, at, false); broken != "" {
				t.Fatal(broken) // the first says enough
			}
			runs++
		}
	}
	t.Logf("%d points, %d runs, %s", calm, runs, time.Since(begun).Round(time.Millisecond))
}

// TestAFaultIsFound checks that the check can fail: if instances obey orders of an old epoch, a paused autoscaler
// breaks the world at some point.
func TestAFaultIsFound(t *testing.T) {
	calm, _ := play(t, nothing, 0, true)
	for at := 1; at <= calm; at++ {
		if _, broken := play(t, freezeCore, at, true); broken != "" {
			first, _, _ := strings.Cut(broken, "\n")
			t.Logf("found: %s", first)
			return
		}
	}
	t.Error("nothing was found")
}
