package knative

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// turns counts how often functions that can't be awake together took turns.
type turns struct {
	mu    sync.Mutex // guards the rest
	last  string
	taken int
}

// note takes in that a function has answered.
func (s *turns) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != s.last {
		s.last, s.taken = name, s.taken+1
	}
}

func (s *turns) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// twoModelsSwapUnderLoad sends a steady load to two functions that share a GPU which holds one of them awake. They take
// turns. Every request is answered with its own text, no model server runs out of memory, and no pod is restarted.
func twoModelsSwapUnderLoad(t *testing.T) {
	c, in := gpus(t, 1)
	o := newOracle(t)
	both := []*function{simulated(t, in, "swap-a", large), simulated(t, in, "swap-b", large)}
	var pods [2]string
	for i, f := range both {
		o.right(f, 0)
		pods[i] = f.onlyPod()
	}
	var s turns
	l := underLoad(t, 6, func(ctx context.Context, i int64) error {
		f := both[i%2]
		err := o.asks(ctx, f, i)
		s.note(f.name)
		return err
	})
	eventually(t, "they take turns", func() string {
		if n := s.count(); n < 12 {
			return fmt.Sprintf("%d turns were taken, want 12", n)
		}
		return ""
	})
	for _, failure := range l.end() {
		t.Error(failure)
	}
	for i, f := range both {
		f.same(pods[i])
		if n := f.restarts(); n != 0 {
			t.Errorf("the model server of %s was started again %d times", f.name, n)
		}
	}
	hasUsed(t, c, 69*gib) // one awake and one asleep
}

// threeSleepOnOneDevice lets three functions sleep on one GPU, one of them without its weights, and asks them in turn.
// While all are asleep, only their residues are in use.
func threeSleepOnOneDevice(t *testing.T) {
	c, in := gpus(t, 1)
	o := newOracle(t)
	all := []*function{
		simulated(t, in, "nap-a", large, "rouse.dev/sleep-after=1s"),
		simulated(t, in, "nap-b", large, "rouse.dev/sleep-after=1s"),
		simulated(t, in, "nap-c", large, "rouse.dev/sleep-after=1s", "rouse.dev/sleep-level=2"),
	}
	var pods []string
	for _, f := range all {
		o.right(f, 1)
		pods = append(pods, f.onlyPod())
	}
	for turn := range int64(2) {
		for _, f := range all {
			f.hasState("asleep")
		}
		hasUsed(t, c, 3*gib)
		for i, f := range all {
			o.right(f, 10*turn+int64(i))
			f.same(pods[i])
		}
	}
}

// TestTheAutoscalerIsKilledDuringASwap kills the autoscaler between the sleep of one function and the wake of another.
// The next leader completes the swap.
func TestTheAutoscalerIsKilledDuringASwap(t *testing.T) {
	c, in := gpus(t, 1)
	o := newOracle(t)
	slow := large + " --sleep-time 1s --wake-time 1s"
	both := []*function{simulated(t, in, "cut-a", slow), simulated(t, in, "cut-b", slow)}
	for _, f := range both {
		o.right(f, 0)
	}
	both[0].hasState("asleep")
	both[1].hasState("awake")
	answered := make(chan error, 1)
	go func() { answered <- o.asks(t.Context(), both[0], 1) }()
	eventually(t, "the victim's sleep begins", func() string {
		if fmt.Sprint(both[1].states()) == "[awake]" {
			return "it is awake"
		}
		return ""
	})
	leader := pods(t, c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving")
	if len(leader) != 1 {
		t.Fatalf("%d autoscalers lead, want 1", len(leader))
	}
	kill(t, c, leader[0].Metadata.Name)
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("the request of the swap: %v", err)
		}
	case <-time.After(soon):
		t.Fatalf("the request of the swap is not answered after %v", soon)
	}
	for i := range int64(4) {
		o.right(both[i%2], 2+i)
	}
	for _, f := range both {
		if n := f.restarts(); n != 0 {
			t.Errorf("the model server of %s was started again %d times", f.name, n)
		}
	}
}
