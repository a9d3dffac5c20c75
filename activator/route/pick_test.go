package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// fleet returns a set of awake instances a, b, c and so on, with so many slots each.
func fleet(n, slots int) *Set {
	s := new(Set)
	for k := range n {
		s.Observe(report(k, api.Awake, 1, slots), epoch)
	}
	return s
}

func report(k int, state api.State, seq uint64, slots int) api.InstanceStatus {
	return api.InstanceStatus{Instance: api.InstanceID(fmt.Sprint("i", k)), State: state, Seq: seq, Concurrency: slots, Endpoint: "unix:/s"}
}

// prompt returns the Want of a conversation of so many blocks.
func prompt(tenant, name string, blocks int) Want {
	text := strings.Repeat(fmt.Sprintf("%-64s", name), blocks*shortBlock/64)
	return Want{Prefix: ChainOf(SaltOf(tenant), []byte(text+"]"))}
}

func pick(t *testing.T, s *Set, w Want) (*Instance, api.Choice) {
	t.Helper()
	i, why := s.PickFor(epoch, w, nil)
	if i == nil {
		t.Fatal("no instance was picked")
	}
	return i, why
}

// TestConversation: a conversation stays at its first instance, however many others there are.
func TestConversation(t *testing.T) {
	s, at := fleet(4, 8), map[int]api.InstanceID{}
	used := map[api.InstanceID]int{}
	for turn := range 8 {
		for n := range 40 {
			i, why := pick(t, s, prompt("a", fmt.Sprint("c", n), 3+2*turn))
			s.Release(i, "")
			switch {
			case turn == 0:
				at[n] = i.ID
				used[i.ID]++
			case at[n] != i.ID || why.By != ByPrefix || why.Known != tokens(3+2*(turn-1)):
				t.Fatalf("turn %d of %d went to %s (%+v), want %s", turn, n, i.ID, why, at[n])
			}
		}
	}
	if len(used) != 4 {
		t.Errorf("the conversations went to %v", used)
	}
}

// TestHotPrompt: a beginning that all requests share spreads over more instances as more requests run, and never
// makes one much busier than others.
func TestHotPrompt(t *testing.T) {
	s := fleet(8, 16)
	for n := range 8 * 16 {
		pick(t, s, prompt("a", "hot", 20))
		most, least := 0, 16
		for _, i := range s.All() {
			most, least = max(most, i.running), min(least, i.running)
		}
		if mean := float64(n) / 8; most > least+5 && float64(most) > mean*aboveMean+1 {
			t.Fatalf("after %d requests one instance has %d and another %d", n+1, most, least)
		}
	}
	if i, _ := s.PickFor(epoch, prompt("a", "hot", 20), nil); i != nil {
		t.Error("a request was sent to an instance without a free slot")
	}
}

// TestLost: the index forgets an instance that has gone, slept, or whose runtime was restarted.
func TestLost(t *testing.T) {
	again := func(change func(*api.InstanceStatus)) func(*Set, *Instance) {
		return func(s *Set, i *Instance) {
			st := i.Status()
			st.Seq++
			change(&st)
			s.Observe(st, epoch)
			st.Seq, st.State = st.Seq+1, api.Awake
			s.Observe(st, epoch)
		}
	}
	asleep := func(kept api.Tokens) func(*api.InstanceStatus) {
		return func(st *api.InstanceStatus) {
			st.State, st.Level, st.Load = api.Asleep, api.Level1, &api.Load{Cached: kept, CacheKnown: true}
		}
	}
	woken := func(change func(*api.InstanceStatus)) func(*Set, *Instance) {
		return func(s *Set, i *Instance) {
			st := i.Status()
			for _, next := range []func(*api.InstanceStatus){asleep(1 << 20), change} {
				st.Seq++
				next(&st)
				s.Observe(st, epoch)
			}
			st.State, st.Level, st.Load, st.Seq = api.Awake, 0, nil, st.Seq+1
			s.Observe(st, epoch)
		}
	}
	for name, tc := range map[string]struct {
		event func(*Set, *Instance)
		keeps bool
	}{
		"a sleep that keeps it":      {again(asleep(1 << 20)), true},
		"a sleep that keeps nothing": {again(asleep(0)), false},
		"a wake out of it":           {woken(func(st *api.InstanceStatus) { st.State, st.Stage, st.Load = api.Starting, "waking", nil }), true},
		"a deeper sleep":             {woken(func(st *api.InstanceStatus) { st.Level, st.Load = api.Level2, nil }), false},
		"a start":                    {woken(func(st *api.InstanceStatus) { st.State, st.Stage, st.Load = api.Starting, "loading", nil }), false},
		"a new process in its sleep": {woken(func(st *api.InstanceStatus) { st.PID = 5 }), false},
		"a wake out of a missed one": {again(func(st *api.InstanceStatus) { st.State, st.Stage = api.Starting, "waking" }), false},
		"a report":                   {again(func(*api.InstanceStatus) {}), true},
		"a sleep":                    {again(func(st *api.InstanceStatus) { st.State = api.Asleep }), false},
		"a drain":                    {again(func(st *api.InstanceStatus) { st.State = api.Draining }), true},
		"a missed one":               {again(func(st *api.InstanceStatus) { st.Since = epoch }), false},
		"a new process":              {again(func(st *api.InstanceStatus) { st.PID = 5 }), false},
		"a restart":                  {again(func(st *api.InstanceStatus) { st.Restarts = 1 }), false},
		"its end": {func(s *Set, i *Instance) {
			st := i.Status()
			st.State, st.Seq = api.Gone, st.Seq+1
			s.Observe(st, epoch)
		}, false},
	} {
		s := fleet(3, 4)
		first, _ := pick(t, s, prompt("a", "x", 10))
		s.Release(first, "")
		tc.event(s, first)
		next, why := pick(t, s, prompt("a", "x", 12))
		if (why.By == ByPrefix) != tc.keeps || tc.keeps && next != first {
			t.Errorf("after %s: %s by %s, want %s again: %t", name, next.ID, why.By, first.ID, tc.keeps)
		}
	}
}

// TestCacheSays: an instance's recorded cache is trimmed to the size that it reports; prompts sent a moment ago stay.
// Without a report nothing is trimmed.
func TestCacheSays(t *testing.T) {
	s, now := fleet(2, 8), epoch
	known := func() (n int) {
		for k := range 10 {
			want := prompt("a", fmt.Sprint("c", k), 20)
			if depth, _ := s.index.Find(want.Prefix, places{3}, nil); depth == want.Prefix.Len() {
				n++
			}
		}
		return n
	}
	for k := range 10 {
		now = now.Add(time.Minute)
		i, _ := s.PickFor(now, prompt("a", fmt.Sprint("c", k), 20), nil)
		s.Release(i, "")
	}
	seq := uint64(1)
	say := func(at time.Time, load *api.Load) {
		seq++
		for k := range 2 {
			st := report(k, api.Awake, seq, 8)
			st.Load = load
			if !s.Observe(st, at) {
				t.Fatal("a report is not taken")
			}
		}
	}
	bytes := api.Bytes(bytesOf(20))
	for _, step := range []struct {
		name string
		at   time.Time
		load *api.Load
		want int
	}{
		{"nothing", now.Add(time.Minute), nil, 10},
		{"only what runs", now.Add(time.Minute), &api.Load{Running: 1, Cached: 1}, 10},
		{"enough", now.Add(time.Minute), &api.Load{CacheKnown: true, Cached: api.Tokens(10 * bytes / 4)}, 10},
		{"two each", now.Add(time.Minute), &api.Load{CacheKnown: true, Cached: api.Tokens(2 * bytes / 4)}, 4},
		{"a cleared cache, when the last one has just been sent", now.Add(time.Second), &api.Load{CacheKnown: true}, 1},
		{"a cleared cache", now.Add(time.Minute), &api.Load{CacheKnown: true}, 0},
	} {
		if say(step.at, step.load); known() != step.want {
			t.Errorf("it says %s: %d conversations are known, want %d", step.name, known(), step.want)
		}
	}
	for range 200 { // a language with two bytes per token
		s.Count(2000, 1000)
	}
	for k := range 10 {
		now = now.Add(time.Minute)
		i, _ := s.PickFor(now, prompt("a", fmt.Sprint("c", k), 20), nil)
		s.Release(i, "")
	}
	if say(now.Add(time.Minute), &api.Load{CacheKnown: true, Cached: api.Tokens(2 * bytes / 2)}); known() != 4 {
		t.Errorf("with two bytes a token %d conversations are known, want 4", known())
	}
	s.Count(0, 5)
	s.Count(5, 0)
}

// TestAgree: activators that know nothing of each other's requests send a conversation to the same instance. They
// also agree if the client names a session, whatever it requests.
func TestAgree(t *testing.T) {
	same := 0
	for n := range 400 {
		w := prompt("a", fmt.Sprint(n), 5)
		one, _ := pick(t, fleet(5, 8), w)
		two, why := pick(t, fleet(5, 8), prompt("a", fmt.Sprint(n), 7))
		if one.ID == two.ID && why.By == ByPrompt {
			same++
		}
	}
	if same != 400 {
		t.Errorf("%d of 400 conversations went to the same instance", same)
	}
	s := fleet(5, 8)
	first, why := pick(t, s, Want{Session: 7, Prefix: prompt("a", "x", 3).Prefix})
	next, _ := pick(t, fleet(5, 8), Want{Session: 7})
	if first.ID != next.ID || why.By != BySession {
		t.Errorf("the session went to %s (%+v), then to %s", first.ID, why, next.ID)
	}
}

// TestAgreeBehindSystemPrompt: activators also agree on a conversation if all begin with the same text, once that has
// been seen everywhere.
func TestAgreeBehindSystemPrompt(t *testing.T) {
	of := func(name string, turns int) Want {
		text := strings.Repeat(fmt.Sprintf("%-128s", name), turns)
		return Want{Prefix: ChainOf(SaltOf("a"), make([]byte, shortBlock), []byte(text+"]"))}
	}
	at := func(s *Set, w Want) api.InstanceID {
		i, _ := pick(t, s, w)
		s.Release(i, "")
		return i.ID
	}
	one, two := fleet(5, 8), fleet(5, 8)
	for n := range 60 {
		at(one, of(fmt.Sprint("one ", n), 5))
		at(two, of(fmt.Sprint("two ", n), 5))
	}
	places := map[api.InstanceID]bool{}
	for n := range 100 {
		name := fmt.Sprint("both ", n)
		first := at(one, of(name, 1))
		if second := at(two, of(name, 4)); second != first {
			t.Errorf("conversation %d went to %s, then to %s", n, first, second)
		}
		places[first] = true
	}
	if len(places) != 5 {
		t.Errorf("all went to %v", places)
	}
}

// TestOthers: runtimes' reports of others' requests count while they are fresh, and so does full KV memory; after
// that only our own count is used.
func TestOthers(t *testing.T) {
	for name, load := range map[string]api.Load{"requests": {Running: 3, Waiting: 2}, "memory": {KVUsage: 0.97}} {
		s := fleet(2, 8)
		busy := report(0, api.Awake, 2, 8)
		busy.Load = &load
		s.Observe(busy, epoch)
		for range 3 {
			if i, _ := pick(t, s, Want{}); i.ID != "i1" {
				t.Errorf("%s: a request went to %s", name, i.ID)
			}
		}
		at := epoch.Add(fresh + 1)
		for n := range 3 {
			if i, _ := s.PickFor(at, Want{}, nil); i.ID != "i0" {
				t.Errorf("%s: request %d went to %s by an old report", name, n, i.ID)
			}
		}
	}
	s := fleet(2, 8)
	i, _ := pick(t, s, Want{})
	s.Release(i, "")
	late := i.Status() // from during the request that has just ended
	late.Seq, late.Load = 2, &api.Load{Running: 1}
	s.Observe(late, epoch)
	if i.others != 0 {
		t.Errorf("our own request counts as %d of others", i.others)
	}
}

// TestAdapterInFlight: an instance that loads an adapter for a request gets the next ones too, before it reports the
// adapter, unless it is much busier.
func TestAdapterInFlight(t *testing.T) {
	s := fleet(3, 8)
	for k := range 3 {
		st := report(k, api.Awake, 2, 8)
		st.Standby = []api.ModelName{"fr"}
		s.Observe(st, epoch)
	}
	first, _ := pick(t, s, Want{Adapter: "fr"})
	second, why := pick(t, s, Want{Adapter: "fr"})
	if second != first || why.By != ByAdapter {
		t.Errorf("the second request went to %s by %s", second.ID, why.By)
	}
	for range 6 {
		pick(t, s, Want{Adapter: "fr"})
	}
	if first.running > 5 {
		t.Errorf("%d of 8 requests went to one instance", first.running)
	}
	for first.running > 0 {
		s.Release(first, "fr")
	}
	if first.has("fr") != 1 {
		t.Error("an adapter for which nothing runs counts as loaded")
	}
}

// rule is a plain implementation of the prompt's rule in [Set.PickFor].
func (w *world) rule(i *Instance, why api.Choice, c Want) string {
	lowest, sum, n := 2.0, 0.0, 0
	for _, o := range w.s.All() {
		if load := w.load(o); o.takes() && load < 1 {
			lowest, sum, n = min(lowest, load), sum+load, n+1
		}
	}
	mean := sum / float64(n) * aboveMean
	may := func(o *Instance) bool {
		load := w.load(o)
		return o.takes() && load < 1 && (load <= lowest+slack(o.slots)/float64(o.slots) || load <= mean)
	}
	most := 0
	for _, o := range w.s.All() {
		if d := w.load(o) - mean; d > -1e-9 && d < 1e-9 {
			return "" // the order of summing loads decides
		}
		if may(o) {
			most = max(most, w.known(o, c))
		}
	}
	switch {
	case !may(i):
		return "it is too busy"
	case (why.By == ByPrefix) != (2*most >= c.Prefix.Len()):
		return fmt.Sprintf("somebody knows %d", most)
	case why.By == ByPrefix && (w.known(i, c) != most || why.Known != tokens(most)):
		return fmt.Sprintf("it knows %d, another %d", w.known(i, c), most)
	}
	return ""
}

// world is a set with the history of its requests.
type world struct {
	s    *Set
	sent map[api.InstanceID]map[string]int // blocks of each conversation
	name string
}

func (w *world) load(i *Instance) float64 { return float64(i.running) / float64(i.slots) }

func (w *world) known(i *Instance, c Want) int { return min(w.sent[i.ID][w.name], c.Prefix.Len()) }

// TestTwin: after any events, a pick obeys the plain rule.
func TestTwin(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 2 + r.IntN(70)
		w := &world{s: fleet(n, 1+r.IntN(20)), sent: map[api.InstanceID]map[string]int{}}
		var running []*Instance
		seqs := slices.Repeat([]uint64{1}, n)
		for step := range 1500 {
			k := r.IntN(n)
			switch r.IntN(12) {
			case 0:
				seqs[k]++
				st := report(k, []api.State{api.Awake, api.Awake, api.Draining, api.Asleep, api.Gone}[r.IntN(5)], seqs[k], 1+r.IntN(20))
				w.s.Observe(st, epoch.Add(time.Duration(step)*time.Minute))
				if st.State != api.Awake && st.State != api.Draining {
					delete(w.sent, st.Instance)
				}
			case 1, 2, 3, 4:
				if len(running) > 0 {
					at := r.IntN(len(running))
					w.s.Release(running[at], "")
					running = slices.Delete(running, at, at+1)
				}
			default:
				w.name = fmt.Sprint(r.IntN(9))
				c := prompt(w.name[:1], w.name, 1+r.IntN(15))
				many := w.s.Many()
				i, why := w.s.PickFor(epoch.Add(time.Duration(step)*time.Minute), c, nil)
				if i == nil {
					continue
				}
				i.running-- // as before
				if many {
					if wrong := w.rule(i, why, c); wrong != "" {
						t.Fatalf("seed %d, step %d: %s by %+v, but %s", seed, step, i.ID, why, wrong)
					}
					if w.sent[i.ID] == nil {
						w.sent[i.ID] = map[string]int{}
					}
					w.sent[i.ID][w.name] = max(w.sent[i.ID][w.name], c.Prefix.Len())
				}
				i.running++
				running = append(running, i)
			}
		}
	}
}

// BenchmarkPickOf1000 picks among 1,000 instances for prompts of 4,000 tokens, most of which an instance has seen.
func BenchmarkPickOf1000(b *testing.B) {
	for _, tokens := range []int{0, 4000, 16_000} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			s := fleet(1000, 64)
			var wants []Want
			for n := range 64 {
				w := prompt("a", fmt.Sprint(n), tokens*4/shortBlock)
				wants = append(wants, w)
			}
			r := rand.New(rand.NewPCG(1, 1))
			var running []*Instance
			for n := range 20_000 { // the instances are half busy
				i, _ := s.PickFor(epoch, wants[n%64], nil)
				running = append(running, i)
			}
			took := make([]time.Duration, 0, 1<<16)
			for b.Loop() {
				at := r.IntN(len(running))
				s.Release(running[at], "")
				began := time.Now()
				running[at], _ = s.PickFor(epoch, wants[r.IntN(64)], nil)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
		})
	}
}
