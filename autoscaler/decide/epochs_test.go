package decide

import (
	"math"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestEpochsRise(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	machine := &Epochs{}
	a := machine.Next(0, now)
	if b := machine.Next(a, now.Add(-time.Hour)); b <= a {
		t.Errorf("after a clock that jumped back: %d, before it %d", b, a)
	}
	first, second := &Epochs{Term: 1}, &Epochs{Term: 2}
	if e := first.Next(a, now); e <= a || termOf(e) != 1 {
		t.Errorf("a cluster after one machine: %d after %d", e, a)
	}
	var late uint64
	for range 1000 {
		late = first.Next(late, now)
	}
	e := second.Next(0, now.Add(-24*time.Hour)) // it has seen nothing, and its clock is behind
	if e <= late {
		t.Errorf("the second leader begins at %d, the first was at %d", e, late)
	}
	if stale := first.Next(e, now); stale >= e || !first.Beyond(e) {
		t.Errorf("the first leader outbids the second: %d, beyond %t", stale, first.Beyond(e))
	}
}

// TestLies: what an instance says of its epoch spoils nobody else's, and overflows nothing.
func TestLies(t *testing.T) {
	now := time.Now()
	for _, e := range []*Epochs{{}, {Term: 3}} {
		for _, lie := range []uint64{math.MaxUint64, FirstEpoch(4) - 1, FirstEpoch(4)} {
			if !e.Beyond(lie) {
				t.Errorf("term %d: %d is not beyond", e.Term, lie)
			}
			if got := e.Next(lie, now); termOf(got) != e.Term {
				t.Errorf("term %d after %d: %d", e.Term, lie, got)
			}
		}
		if lie := e.Next(0, now) + 1<<20; e.Next(lie, now) != lie+1 || e.Next(0, now) >= lie {
			t.Errorf("term %d: the highest of one instance is another's too", e.Term)
		}
	}
}

func TestSettle(t *testing.T) {
	g := AssumeGranted(api.InstanceStatus{Instance: "i", Function: "default/f", Epoch: 3}, 7, time.Now())
	if got := SettleGrant(g, api.InstanceStatus{Epoch: 7}); got.Instance == "" {
		t.Error("an instance that has seen the grant's own epoch obeys it still")
	}
	if got := SettleGrant(g, api.InstanceStatus{Epoch: 8}); got.Instance != "" {
		t.Error("an instance that has seen a later epoch is fenced")
	}
	if !ForgotEpoch(api.InstanceStatus{Epoch: 8}, api.InstanceStatus{Epoch: 7}) {
		t.Error("an epoch that falls is none that was forgotten")
	}
}
