package door

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// counting is an activator that counts its functions.
type counting struct {
	Activator
	functions map[api.FunctionName]api.Function
}

func (a *counting) PutFunction(spec api.Function)        { a.functions[spec.Name] = spec }
func (a *counting) RemoveFunction(name api.FunctionName) { delete(a.functions, name) }
func (*counting) ObserveInstance(api.InstanceStatus)     {}
func (*counting) Fail(_ api.FunctionName, _ *api.Error)  {}

// boundedFront returns a front door with the cluster east.
func boundedFront(t *testing.T) (*Front, *counting) {
	t.Helper()
	a := &counting{functions: map[api.FunctionName]api.Function{}}
	f, err := New(Config{Name: "front"}, Deps{Activator: a})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Declare([]Declaration{{Name: "east", TokenHashes: []string{HashToken("e")}, Functions: []string{"east/*"}, Names: []string{"x*"}}}); err != nil {
		t.Fatal(err)
	}
	return f, a
}

// joined returns a session of an agent.
func joined(t *testing.T, f *Front, agent string) *session {
	t.Helper()
	s := &session{hello: protocol.Hello{Cluster: "east", Agent: agent, Run: agent}, declared: f.clusters["east"].Declaration, pool: protocol.NewPool(f.unlink),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), denied: map[api.FunctionName]bool{}, demand: map[api.FunctionName]api.Demand{}}
	if err := f.addSession(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// offer applies a message with functions.
func (s *session) offer(t *testing.T, f *Front, list ...protocol.Function) {
	t.Helper()
	if err := f.applyUpdate(s, &protocol.Up{Functions: list}); err != nil {
		t.Fatal(err)
	}
}

func (s *session) isOver() string {
	select {
	case <-s.ended:
		return s.reason
	default:
		return ""
	}
}

// many returns n names.
func many(prefix string, n int) (all []api.ModelName) {
	for k := range n {
		all = append(all, api.ModelName(fmt.Sprint(prefix, k)))
	}
	return all
}

// TestLostDemand: the demand of another front door counts as long as it is repeated.
func TestLostDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := boundedFront(t)
		s := joined(t, f, "a")
		s.offer(t, f, protocol.Function{Name: "east/m", Model: "m", State: api.Asleep})
		for _, waiting := range []int{1, 1, 0} {
			if waiting > 0 {
				f.EmitOf(api.NewEvent(api.EventDemand, "/front/x", "east/m", api.Demand{Function: "east/m", Activator: "front/x", Waiting: waiting}))
			}
			time.Sleep(control.DemandTTL - time.Second)
			synctest.Wait()
			f.mu.Lock()
			if got := s.demand["east/m"].Waiting; got != waiting {
				t.Errorf("%d wait, want %d", got, waiting)
			}
			f.mu.Unlock()
		}
	})
}

// TestManyNames: a function has a bounded number of names, the agent is told, and one whose texts have no end is shut
// out.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := boundedFront(t)
		s := joined(t, f, "a")
		for round := range 3 {
			s.offer(t, f, protocol.Function{Name: "east/a", Model: "xa", Aliases: many(fmt.Sprintf("x%d-", round), 30_000)})
		}
		if n := len(told.functions["east/a"].Aliases); n != protocol.MaxNames-1 {
			t.Errorf("it has %d aliases besides its name, want %d", n, protocol.MaxNames)
		}
		if n := len(f.owners); n > protocol.MaxNames+1 {
			t.Errorf("%d names have owners", n)
		}
		if n := len(s.refused); n == 0 || !strings.Contains(s.refused[0].Reason, "more than 64") {
			t.Errorf("the agent is told %v", s.refused)
		}
		if why := s.isOver(); why != "" {
			t.Errorf("it is shut out: %s", why)
		}
		long := strings.Repeat("x", protocol.MaxName-10)
		var list []protocol.Function
		for k := range 800 {
			list = append(list, protocol.Function{Name: api.FunctionName(fmt.Sprint("east/f", k)), Model: "m", Aliases: many(long, 64)})
		}
		s.offer(t, f, list...)
		if why := s.isOver(); !strings.Contains(why, "bytes") || len(f.functions) > protocol.MaxReported/64/200+1 {
			t.Errorf("it is shut out: %q, with %d functions", why, len(f.functions))
		}
	})
}

// TestTextsAreGivenBack: what an agent no longer offers does not count.
func TestTextsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := boundedFront(t)
		s := joined(t, f, "a")
		for range 600 {
			s.offer(t, f, protocol.Function{Name: "east/a", Model: "m", Aliases: many(strings.Repeat("x", 240), 64)})
			s.offer(t, f, protocol.Function{Name: "east/a"})
		}
		if s.isOver() != "" || s.reported != 0 {
			t.Errorf("%d bytes are left, %s", s.reported, s.isOver())
		}
	})
}

// TestManySessions: an agent that comes again and again, and never has reported all, leaves no more behind than one session
// may report. One that does report all counts with that alone.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := boundedFront(t)
		aliases := many(strings.Repeat("x", 240), 64)
		offers := func(round, n int) (list []protocol.Function) {
			for k := range n {
				list = append(list, protocol.Function{Name: api.FunctionName(fmt.Sprintf("east/f%d-%d", round, k)), Model: "m", Aliases: aliases})
			}
			return list
		}
		over := ""
		for round := 0; round < 6 && over == ""; round++ {
			s, left := joined(t, f, "a"), 0
			s.offer(t, f, offers(round, 100)...)
			for _, fn := range f.functions {
				for _, o := range fn.offers {
					left += o.state.Size()
				}
			}
			if over = s.isOver(); left == 0 || left > protocol.MaxReported {
				t.Fatalf("after %d sessions there are %d bytes", round+1, left)
			}
		}
		if !strings.Contains(over, "bytes") {
			t.Errorf("it is shut out: %q", over)
		}
		for round := range 6 {
			s := joined(t, f, "b")
			s.offer(t, f, offers(round, 200)...)
			if err := f.applyUpdate(s, &protocol.Up{Complete: true}); err != nil || s.isOver() != "" {
				t.Fatalf("round %d: %v, %s", round, err, s.isOver())
			}
		}
	})
}

// TestVacantFunctions: an agent that offers other functions all the time leaves a bounded number behind, for a while.
func TestVacantFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := boundedFront(t)
		s := joined(t, f, "a")
		const each = protocol.MaxFunctions / 4
		for round := range 6 {
			var come, gone []protocol.Function
			for k := range each {
				name := api.FunctionName(fmt.Sprintf("east/f%d-%d", round, k))
				come = append(come, protocol.Function{Name: name, Model: api.ModelName(name)})
				gone = append(gone, protocol.Function{Name: name})
			}
			s.offer(t, f, come...)
			s.offer(t, f, gone...)
			if n := len(f.functions); n > protocol.MaxFunctions+each {
				t.Fatalf("after round %d there are %d functions", round, n)
			}
		}
		synctest.Wait()
		s.offer(t, f, protocol.Function{Name: "east/f0-0", Model: "m"}, protocol.Function{Name: "east/f5-0", Model: "m"})
		time.Sleep(keepFor)
		synctest.Wait()
		if len(f.functions) != 2 || len(told.functions) != 2 || f.vacancies != 0 {
			t.Errorf("%d functions are left, the activator has %d, %d are vacant", len(f.functions), len(told.functions), f.vacancies)
		}
	})
}

// TestManyRefusals: refusals that an agent does not read are bounded.
func TestManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := boundedFront(t)
		s := joined(t, f, "a")
		for k := range maxDemands + 10 {
			s.offer(t, f, protocol.Function{Name: api.FunctionName(fmt.Sprint("west/f", k)), Model: "m"}, protocol.Function{Name: api.FunctionName(fmt.Sprint("west/f", k-1))})
		}
		if len(s.refused) != maxDemands || len(s.denied) != 1 {
			t.Errorf("%d refusals wait, %d functions are denied", len(s.refused), len(s.denied))
		}
	})
}

// TestManyAgents: a cluster has a bounded number of agents.
func TestManyAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := boundedFront(t)
		for k := range maxAgents {
			joined(t, f, fmt.Sprint("a", k))
		}
		s := &session{hello: protocol.Hello{Cluster: "east", Agent: "b", Run: "b"}}
		if err := f.addSession(s); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
		s = &session{hello: protocol.Hello{Cluster: "east", Agent: "a0", Run: "a0"}}
		if err := f.addSession(s); err != nil {
			t.Errorf("one of them comes again: %v", err)
		}
	})
}
