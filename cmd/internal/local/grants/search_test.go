package grants

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// search visits every state that can be reached, at most limit of them, the nearest
// first. It returns how many it has seen, whether that was all, and the way to the first
// that is broken; empty: there is none.
func (m *model) search(limit int) (seen int, all bool, way string) {
	first := m.begin()
	seed := maphash.MakeSeed()
	known := map[uint64]struct{}{maphash.Comparable(seed, first): {}} // that two have one hash is less likely than a broken machine
	order := []state{first}
	from := []int32{-1}
	by := []move{{}}
	for at := 0; at < len(order); at++ {
		s := order[at]
		if what := s.broken(); what != "" {
			return len(order), false, m.tell(order, from, by, at) + what
		}
		if len(order) >= limit {
			continue // those that are known are looked at still
		}
		m.moves(&s, func(mv move, n *state) {
			h := maphash.Comparable(seed, *n)
			if _, found := known[h]; found {
				return
			}
			known[h] = struct{}{}
			order, from, by = append(order, *n), append(from, int32(at)), append(by, mv)
		})
	}
	return len(order), len(order) < limit, ""
}

// tell is the way to a state, a line for each move.
func (m *model) tell(order []state, from []int32, by []move, at int) string {
	var lines []string
	for ; from[at] >= 0; at = int(from[at]) {
		s := &order[at]
		line, _, _ := strings.Cut(by[at].String(), "[")
		lines = append(lines, fmt.Sprintf("%s  (%s %s)", line, s.truth(0).phase, s.truth(1).phase))
	}
	var b strings.Builder
	for k := len(lines) - 1; k >= 0; k-- {
		b.WriteString(lines[k] + "\n")
	}
	return b.String()
}

// walk goes at random, many times from the beginning, and so gets far deeper than a search
// does. It returns how many states it has passed, and the way to the first that is broken.
func (m *model) walk(seed uint64, walks, length int) (passed int, way string) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range walks {
		order, from, by := []state{m.begin()}, []int32{-1}, []move{{}}
		for at := range length {
			var chosen state
			var how move
			n := 0
			m.moves(&order[at], func(mv move, s *state) {
				if n++; r.IntN(n) == 0 {
					chosen, how = *s, mv
				}
			})
			if n == 0 {
				break
			}
			passed++
			order, from, by = append(order, chosen), append(from, int32(at)), append(by, how)
			if what := chosen.broken(); what != "" {
				return passed, m.tell(order, from, by, at+1) + what
			}
		}
	}
	return passed, ""
}

// soak multiplies the work: ROUSE_SOAK is a number, 1 where it is not set.
func soak() int {
	if n, err := strconv.Atoi(os.Getenv("ROUSE_SOAK")); err == nil && n > 0 {
		return n
	}
	return 1
}

// TestNeverBothAwake searches the model: all of it where each leader gives one order, and
// from there on what is nearest, and then far and wide at random.
func TestNeverBothAwake(t *testing.T) {
	for _, c := range []struct {
		name   string
		all    bool // the search has to come to its end
		change func(*model)
	}{
		{"one order of each leader", true, func(m *model) { m.orders = 1 }},
		{"one order, after all was settled, no restarts", true, func(m *model) { m.orders, m.restarts, m.moments, m.settled = 1, 0, 5, true }},
		{"four orders", false, nil},
		{"four orders, after all was settled", false, func(m *model) { m.settled = true }},
		{"two activators", false, func(m *model) { m.doors, m.restarts, m.settled = 2, 0, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, begun, limit := newModel(c.change), time.Now(), 60_000*soak()
			if c.all {
				limit = 1 << 30
			}
			seen, all, way := m.search(limit)
			if way != "" {
				t.Fatalf("in %d states:\n%s", seen, way)
			}
			if c.all && !all {
				t.Errorf("the search has not come to its end")
			}
			passed := 0
			if !c.all {
				if passed, way = m.walk(7, 2000*soak(), 60); way != "" {
					t.Fatalf("in %d steps at random:\n%s", passed, way)
				}
			}
			t.Logf("%d states (all: %t), and %d steps at random; %d plans; %s", seen, all, passed, len(m.plans), time.Since(begun).Round(time.Millisecond))
		})
	}
}

// TestMutants: without any one of the rules both are awake, and it is found out.
func TestMutants(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*model)
	}{
		{"instances obey any epoch", func(m *model) { m.noFence = true }},
		{"a revocation is not waited for", func(m *model) { m.noWait = true }},
		{"what was granted by a leader before does not count", func(m *model) { m.noSuspect = true }},
		{"epochs have no terms", func(m *model) { m.noTerm = true }},
		{"the instance is not asked, only activators", func(m *model) { m.doorsSuffice = true }},
		{"a wake that failed leaves nothing behind", func(m *model) { m.freeAfterTry = true }},
		{"time alone frees", func(m *model) { m.clockFrees = true }},
		{"a process that begins anew has forgotten", func(m *model) { m.forgetful = true }},
		{"a process that begins anew starts its runtime if it was awake", func(m *model) { m.startsAwake = true }},
		{"a process that begins anew hears of no term", func(m *model) { m.termless = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			begun := time.Now()
			m := newModel(func(m *model) { m.settled, m.orders = true, 6; c.change(m) })
			passed, way := m.walk(11, 400_000, 60)
			if way == "" {
				t.Fatalf("nothing was found in %d steps", passed)
			}
			t.Logf("found after %d steps, %s:\n%s", passed, time.Since(begun).Round(time.Millisecond), way)
		})
	}
}
