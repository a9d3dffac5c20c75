package sched_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// crowd keeps a scheduler busy, so that some sequences always wait: prompts of n tokens that end with the next token,
// of the tenants and priorities that more returns.
func crowd(m *machine, n int, more func(i int) (tenant string, priority int)) {
	for i := 0; m.sched.Stats().Waiting < 8; i++ {
		tenant, priority := more(i)
		m.add(sched.Request{Prompt: ones(n), Max: n + 1, Tenant: tenant, Priority: priority}, true)
	}
}

func ones(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// until computes batches and calls keep for the crowd until done returns true. It returns the number of batches.
func (m *machine) until(limit int, keep func(), done func() bool) int {
	for n := range limit {
		if done() {
			return n
		}
		keep()
		for m.schedule() {
		}
		m.update()
	}
	m.t.Fatalf("not done after %d steps: %+v", limit, m.sched.Stats())
	return 0
}

func TestABadPriorityIsNotStarved(t *testing.T) {
	for _, tight := range []bool{false, true} {
		blocks := 100
		if tight {
			blocks = 6 // the low-priority one needs all of them
		}
		m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 8, Seats: 3, Depth: 2}, block.New(blocks, 4))
		m.sched.Tune(10, 0, 0)
		keep := func() { crowd(m, 7, func(int) (string, int) { return "", 0 }) }
		keep()
		m.add(sched.Request{Prompt: ones(12), Max: 24, Priority: 1000, Tenant: "low"}, true)
		low := m.last
		m.until(120, keep, func() bool { return m.live[low] == nil })
		if n := m.sched.Stats().Promoted; n == 0 {
			t.Errorf("tight %v: nobody was promoted, so this shows nothing", tight)
		}
	}
}

func TestATenantWithManyDoesNotStarveOne(t *testing.T) {
	m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 8, Seats: 8}, block.New(2000, 4))
	for range 1000 {
		m.add(sched.Request{Prompt: ones(8), Max: 9, Tenant: "many"}, true)
	}
	m.until(50, func() {}, func() bool { return m.sched.Stats().Waiting < 980 })
	m.add(sched.Request{Prompt: ones(8), Max: 9, Tenant: "one"}, true)
	one := m.last
	if n := m.until(1000, func() {}, func() bool { return m.live[one] == nil }); n > 3 {
		t.Errorf("a request beside a thousand others of another tenant took %d steps, want at most 3", n)
	}
	m.drain()
}

func TestTenantsShareByTokens(t *testing.T) {
	m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 16, Seats: 8, Depth: 2}, block.New(1000, 4))
	got := map[string]int{}
	size := map[string]int{"long": 40, "short": 5}
	waiting := map[string]int{}
	open := map[sched.ID]string{}
	keep := func() {
		for _, tenant := range []string{"long", "short"} {
			for waiting[tenant] < 20 {
				m.add(sched.Request{Prompt: ones(size[tenant]), Max: size[tenant] + 1, Tenant: tenant}, true)
				waiting[tenant]++
				open[m.last] = tenant
			}
		}
		for id, tenant := range open {
			if m.live[id] == nil {
				got[tenant] += size[tenant]
				waiting[tenant]--
				delete(open, id)
			}
		}
	}
	m.until(401, keep, func() bool { return got["long"]+got["short"] > 16*380 })
	if ratio := float64(got["long"]) / float64(got["short"]); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("tenants with long and short prompts got %v tokens: want about the same", got)
	}
}

// TestIdlenessEarnsNothing checks that a tenant that comes late gets half of the steps from then on, not all of
// them until it has caught up.
func TestIdlenessEarnsNothing(t *testing.T) {
	m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 8, Seats: 8}, block.New(4000, 4))
	add := func(tenant string, n int) (last sched.ID) {
		for range n {
			m.add(sched.Request{Prompt: ones(8), Max: 9, Tenant: tenant}, true)
		}
		return m.last
	}
	add("early", 200)
	m.until(150, func() {}, func() bool { return m.sched.Stats().Waiting <= 100 })
	end := add("late", 50)
	if n := m.until(150, func() {}, func() bool { return m.live[end] == nil }); n < 90 {
		t.Errorf("fifty requests of a tenant that comes late are done in %d steps of one each, beside a hundred others: want about 100", n)
	}
}

// TestSeatsAreShared: a tenant has taken all seats with long answers. The sequences of another one run at the next steps, as
// many as its share of the seats, and the others go on.
func TestSeatsAreShared(t *testing.T) {
	m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 64, Seats: 8, Depth: 2, Prefix: true}, block.New(2000, 4))
	for range 64 {
		m.add(sched.Request{Prompt: ones(8), Max: 500, Tenant: "many"}, true)
	}
	m.until(50, func() {}, func() bool { return m.sched.Stats().Running == 8 })
	var few []sched.ID
	for range 6 {
		m.add(sched.Request{Prompt: ones(8), Max: 12, Tenant: "few"}, true)
		few = append(few, m.last)
	}
	if n := m.until(100, func() {}, func() bool { return m.live[few[5]] == nil && m.live[few[0]] == nil }); n > 30 {
		t.Errorf("six short answers beside long ones of another tenant took %d steps, want at most 30", n)
	}
	if n := m.sched.Stats().Preemptions; n == 0 || n > 6 {
		t.Errorf("%d sequences were preempted, want at most one for each", n)
	}
	m.drain()
}

// besideLong sends 20 prompts of 60 tokens, with answers of 16, beside those of 4,096 of another tenant, of which 8 are
// always there: one after another, or at once. It returns how many tokens the engine computed before the first token of each, and for each further one, in the
// mean. That is how long they took, if a step takes as long as its tokens.
func besideLong(t testing.TB, long int, atOnce bool) (first, further float64) {
	s := sched.New(sched.Config{Budget: 512, Seats: 32}, block.New(8*4200/16+200, 16))
	next := sched.ID(1000)
	add := func() {
		next++
		if err := s.Add(sched.Request{ID: next, Prompt: ones(4096), Max: 4097, Tenant: "long"}); err != nil {
			t.Fatal(err)
		}
	}
	for range long {
		add()
	}
	began, had, done, at := map[sched.ID]int{}, map[sched.ID]int{}, 0, 0
	step := func() {
		b := s.Schedule()
		at += b.Tokens
		var results []sched.Result
		for _, i := range b.Items {
			if !i.Sample {
				continue
			}
			results = append(results, sched.Result{ID: i.ID, Tokens: []int32{1}})
			if i.ID > 1000 {
				add()
				continue
			}
			if had[i.ID]++; had[i.ID] == 1 {
				first += float64(at-began[i.ID]) / 20
				began[i.ID] = at
			}
			if had[i.ID] == 16 {
				further += float64(at-began[i.ID]) / 20 / 15
				done++
			}
		}
		s.Update(b.Step, results)
	}
	if long > 0 {
		step()
	}
	for id := range sched.ID(20) {
		began[id] = at
		if err := s.Add(sched.Request{ID: id, Prompt: ones(60), Max: 76, Tenant: "short"}); err != nil {
			t.Fatal(err)
		}
		for !atOnce && had[id] < 16 {
			step()
		}
	}
	for done < 20 {
		step()
	}
	return first, further
}

// TestLongPromptsLeaveHalf: beside the long prompts of another tenant, short ones and their answers wait for at most half a
// step more than without them.
func TestLongPromptsLeaveHalf(t *testing.T) {
	if first, further := besideLong(t, 8, false); first > 60+256.5 || further > 1+256.5 {
		t.Errorf("%.0f tokens are computed before a first token, and %.0f for each further one; want 316 and 257", first, further)
	}
}

func BenchmarkBesideLongPrompts(b *testing.B) {
	for _, atOnce := range []bool{false, true} {
		b.Run(fmt.Sprintf("atOnce=%v", atOnce), func(b *testing.B) {
			for b.Loop() {
				first, further := besideLong(b, 8, atOnce)
				alone, each := besideLong(b, 0, atOnce)
				b.ReportMetric(first/alone, "first/alone")
				b.ReportMetric(further/each, "further/alone")
				b.ReportMetric(first, "tokens/first")
				b.ReportMetric(further, "tokens/further")
			}
		})
	}
}
