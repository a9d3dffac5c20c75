package queue

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// meterRig is a meter of a level that the test sets, with a record of what it sent when.
type meterRig struct {
	t     *testing.T
	start time.Time
	meter *meter

	mu    sync.Mutex // guards all below
	level api.Demand
	sent  []sent
}

type sent struct {
	at      time.Duration
	waiting int
}

func newMeterRig(t *testing.T) *meterRig {
	r := &meterRig{t: t, start: time.Now()}
	r.meter = newMeter(func() api.Demand {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.level
	}, r, "/activator/test")
	return r
}

func (r *meterRig) Emit(e api.Event) {
	var d api.Demand
	if err := json.Unmarshal(e.Data, &d); err != nil || e.Type != api.EventDemand || e.Source != "/activator/test" {
		r.t.Errorf("event %+v: %v", e, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, sent{time.Since(r.start), d.Waiting})
}

func (r *meterRig) set(waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.level.Waiting = waiting
}

func (r *meterRig) want(want ...sent) {
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
		r := newMeterRig(t)
		r.set(1)
		r.meter.sendNow()
		r.want(sent{0, 1}) // sent within the call
		for n := 2; n <= 100; n++ {
			r.set(n)
			r.meter.changed()
		}
		r.want()
		time.Sleep(sendEvery)
		r.want(sent{sendEvery, 100})
		time.Sleep(10 * time.Millisecond)
		r.set(0)
		r.meter.changed()
		time.Sleep(sendEvery)
		r.want(sent{2 * sendEvery, 0})
		time.Sleep(time.Minute)
		r.want() // zero is not repeated
		r.set(1)
		r.meter.changed() // nothing was sent for long: no need to wait for others
		r.want()
		time.Sleep(sendSoon)
		r.want(sent{time.Minute + 2*sendEvery + 10*time.Millisecond + sendSoon, 1})
		r.meter.close()
	})
}

func TestLevelsAreRepeatedWhileNotZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMeterRig(t)
		r.set(3)
		r.meter.sendNow()
		time.Sleep(2*sendRepeat + sendRepeat/2)
		r.want(sent{0, 3}, sent{sendRepeat, 3}, sent{2 * sendRepeat, 3})
		r.meter.close()
	})
}

func TestUrgentIsNeverHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMeterRig(t)
		r.set(1)
		r.meter.sendNow()
		time.Sleep(time.Millisecond)
		r.set(0)
		r.meter.changed()
		time.Sleep(time.Millisecond)
		r.set(1)
		r.meter.sendNow()
		r.want(sent{0, 1}, sent{2 * time.Millisecond, 1})
		r.meter.close()
	})
}

func TestTheLastLevelIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMeterRig(t)
		r.meter.close()
		r.want() // nothing was ever sent: nothing to revoke
		r = newMeterRig(t)
		r.set(2)
		r.meter.sendNow()
		r.meter.close()
		r.want(sent{0, 2}, sent{0, 0})
		r.set(5)
		r.meter.changed()
		r.meter.sendNow()
		r.meter.close()
		time.Sleep(time.Minute)
		r.want()
	})
}

// TestNoChangeIsLost changes the level from many goroutines: the last event must be the last level.
func TestNoChangeIsLost(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newMeterRig(t)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					r.mu.Lock()
					r.level.Waiting++
					r.mu.Unlock()
					r.meter.changed()
				})
			}
			all.Wait()
			time.Sleep(2 * sendEvery)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if last := r.sent[len(r.sent)-1].waiting; last != 8 {
				t.Fatalf("last event says %d, want 8", last)
			}
			r.level.Waiting = 0
			go r.meter.close()
		})
	}
}
