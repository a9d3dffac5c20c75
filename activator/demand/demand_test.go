package demand

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// rig is a meter of a level that the test sets, with a record of what it sent when.
type rig struct {
	t     *testing.T
	start time.Time
	meter *Meter

	mu    sync.Mutex // guards all below
	level api.Demand
	sent  []sent
}

type sent struct {
	at      time.Duration
	waiting int
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, start: time.Now()}
	r.meter = New(func() api.Demand {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.level
	}, r, "/activator/test")
	return r
}

func (r *rig) Emit(e api.Event) {
	var d api.Demand
	if err := json.Unmarshal(e.Data, &d); err != nil || e.Type != api.EventDemand || e.Source != "/activator/test" {
		r.t.Errorf("event %+v: %v", e, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, sent{time.Since(r.start), d.Waiting})
}

func (r *rig) set(waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.level.Waiting = waiting
}

func (r *rig) want(want ...sent) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent) != len(want) {
		r.t.Fatalf("got %v, want %v", r.sent, want)
	}
	for i := range want {
		if r.sent[i] != want[i] {
			r.t.Errorf("event %d: got %v, want %v", i, r.sent[i], want[i])
		}
	}
	r.sent = nil
}

func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set(1)
		r.meter.Urgent()
		r.want(sent{0, 1}) // sent within the call
		for n := 2; n <= 100; n++ {
			r.set(n)
			r.meter.Changed()
		}
		r.want()
		time.Sleep(Every)
		r.want(sent{Every, 100})
		time.Sleep(10 * time.Millisecond)
		r.set(0)
		r.meter.Changed()
		time.Sleep(Every)
		r.want(sent{2 * Every, 0})
		time.Sleep(time.Minute)
		r.want() // zero is not repeated
		r.set(1)
		r.meter.Changed() // nothing was sent for long: no need to wait for others
		r.want()
		time.Sleep(Soon)
		r.want(sent{time.Minute + 2*Every + 10*time.Millisecond + Soon, 1})
		r.meter.Close()
	})
}

func TestLevelsAreRepeatedWhileNotZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set(3)
		r.meter.Urgent()
		time.Sleep(2*Repeat + Repeat/2)
		r.want(sent{0, 3}, sent{Repeat, 3}, sent{2 * Repeat, 3})
		r.meter.Close()
	})
}

func TestUrgentIsNeverHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set(1)
		r.meter.Urgent()
		time.Sleep(time.Millisecond)
		r.set(0)
		r.meter.Changed()
		time.Sleep(time.Millisecond)
		r.set(1)
		r.meter.Urgent()
		r.want(sent{0, 1}, sent{2 * time.Millisecond, 1})
		r.meter.Close()
	})
}

func TestTheLastLevelIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.meter.Close()
		r.want() // nothing was ever sent: nothing to revoke
		r = newRig(t)
		r.set(2)
		r.meter.Urgent()
		r.meter.Close()
		r.want(sent{0, 2}, sent{0, 0})
		r.set(5)
		r.meter.Changed()
		r.meter.Urgent()
		r.meter.Close()
		time.Sleep(time.Minute)
		r.want()
	})
}

// TestNoChangeIsLost changes the level from many goroutines: the last event must be the last level.
func TestNoChangeIsLost(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					r.mu.Lock()
					r.level.Waiting++
					r.mu.Unlock()
					r.meter.Changed()
				})
			}
			all.Wait()
			time.Sleep(2 * Every)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if last := r.sent[len(r.sent)-1].waiting; last != 8 {
				t.Fatalf("last event says %d, want 8", last)
			}
			r.level.Waiting = 0
			go r.meter.Close()
		})
	}
}
