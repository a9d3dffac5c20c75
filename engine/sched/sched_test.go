package sched_test

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// FuzzSchedule plays random arrivals, departures and steps on a machine that
// remembers what was written to every slot of every block. Whatever the
// scheduler does, a sequence must find its own tokens there, and end with the
// very tokens that it gets when it is alone.
func FuzzSchedule(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint8(seed*7), uint8(seed), uint8(seed*3), uint8(seed*5))
	}
	f.Fuzz(func(t *testing.T, seed uint64, blocks, size, budget, seats uint8) {
		cfg := sched.Config{Seats: 1 + int(seats)%8}
		cfg.Budget = cfg.Seats + int(budget)%32
		m := &machine{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), cfg: cfg,
			pool: block.New(1+int(blocks)%24, 1+int(size)%8), live: map[sched.ID]*life{},
		}
		m.sched = sched.New(cfg, m.pool)
		m.slots = make([][]cell, m.pool.Count())
		for i := range m.slots {
			m.slots[i] = make([]cell, m.pool.Size())
		}
		for range 60 {
			switch {
			case m.r.IntN(3) == 0:
				m.add()
			case m.r.IntN(12) == 0:
				m.abort()
			default:
				m.step()
			}
		}
		for steps := 0; len(m.live) > 0; steps++ {
			if steps > 20000 {
				t.Fatalf("%d sequences never end: %+v", len(m.live), m.sched.Stats())
			}
			m.step()
		}
		if got, want := m.sched.Stats(), (sched.Stats{BlocksTotal: m.pool.Count(), Preemptions: m.sched.Stats().Preemptions}); got != want {
			t.Errorf("after the end: %+v, want %+v", got, want)
		}
		if err := m.pool.Check(); err != nil {
			t.Error(err)
		}
	})
}

// machine computes batches and checks them.
type machine struct {
	t     *testing.T
	r     *rand.Rand
	cfg   sched.Config
	pool  *block.Pool
	sched *sched.Scheduler
	slots [][]cell // what each slot of each block holds
	live  map[sched.ID]*life
	last  sched.ID
	order []sched.ID // live ones in order of arrival
}

// cell is one position of one sequence.
type cell struct {
	id    sched.ID
	pos   int
	token int32
}

// life is what the machine knows of a sequence.
type life struct {
	tokens []int32
	prompt int
	max    int
	every  bool
	scored int // prompt positions whose logits were given
}

func (m *machine) add() {
	m.last++
	l := &life{prompt: 1 + m.r.IntN(40), every: m.r.IntN(6) == 0}
	l.max = l.prompt + 1 + m.r.IntN(20)
	for range l.prompt {
		l.tokens = append(l.tokens, m.r.Int32N(1000))
	}
	err := m.sched.Add(sched.Request{ID: m.last, Prompt: slices.Clone(l.tokens), Max: l.max, Every: l.every})
	fits := l.max-1 <= m.pool.Count()*m.pool.Size()
	if fits != (err == nil) || err != nil && !errors.Is(err, sched.ErrTooLong) {
		m.t.Fatalf("add %d tokens to %d blocks of %d: %v", l.max, m.pool.Count(), m.pool.Size(), err)
	}
	if fits {
		m.live[m.last] = l
		m.order = append(m.order, m.last)
	}
}

func (m *machine) abort() {
	if len(m.order) == 0 {
		return
	}
	id := m.order[m.r.IntN(len(m.order))]
	if !m.sched.Abort(id) {
		m.t.Fatalf("abort %d: not there", id)
	}
	m.forget(id)
}

func (m *machine) forget(id sched.ID) {
	delete(m.live, id)
	m.order = slices.DeleteFunc(m.order, func(o sched.ID) bool { return o == id })
}

func (m *machine) step() {
	batch := m.sched.Schedule()
	if len(batch.Items) == 0 && len(m.live) > 0 {
		m.t.Fatalf("an empty step with %d sequences: %+v", len(m.live), m.sched.Stats())
	}
	tokens := 0
	seen := map[sched.ID]bool{}
	var results []sched.Result
	for _, item := range batch.Items {
		if seen[item.ID] {
			m.t.Fatalf("sequence %d is in the batch twice", item.ID)
		}
		seen[item.ID] = true
		tokens += len(item.Tokens)
		if r, ok := m.compute(item); ok {
			results = append(results, r)
		}
	}
	if tokens != batch.Tokens || tokens > m.cfg.Budget || len(batch.Items) > m.cfg.Seats {
		m.t.Fatalf("%d tokens (says %d) of %d sequences in a step, want at most %d of %d", tokens, batch.Tokens, len(batch.Items), m.cfg.Budget, m.cfg.Seats)
	}
	if len(m.order) > 0 && !seen[m.order[0]] {
		m.t.Fatalf("sequence %d arrived first and is not in the batch", m.order[0])
	}
	m.sched.Update(results)
	for _, r := range results {
		if r.Done {
			m.forget(r.ID)
		}
	}
}

// compute writes an item's tokens into their slots, reads all of its positions back, and chooses a token if one is owed.
func (m *machine) compute(item sched.Item) (sched.Result, bool) {
	l := m.live[item.ID]
	if l == nil {
		m.t.Fatalf("sequence %d is in the batch but over", item.ID)
	}
	end := item.Pos + len(item.Tokens)
	if len(item.Tokens) == 0 || end > len(l.tokens) || !slices.Equal(item.Tokens, l.tokens[item.Pos:end]) {
		m.t.Fatalf("sequence %d at %d: %v, want a part of %v", item.ID, item.Pos, item.Tokens, l.tokens)
	}
	h := fnv.New32a()
	for pos := range end {
		block, slot := item.Blocks[pos/m.pool.Size()], pos%m.pool.Size()
		if pos >= item.Pos {
			m.slots[block][slot] = cell{item.ID, pos, item.Tokens[pos-item.Pos]}
		}
		if got, want := m.slots[block][slot], (cell{item.ID, pos, l.tokens[pos]}); got != want {
			m.t.Fatalf("block %d holds %+v, want %+v", block, got, want)
		}
		h.Write([]byte{byte(l.tokens[pos]), byte(l.tokens[pos] >> 8)})
	}
	if l.every && item.Logits && end == l.scored+1 {
		l.scored++
	}
	if item.Sample != (end == len(l.tokens)) || item.Sample && !item.Logits {
		m.t.Fatalf("sequence %d, %d of %d tokens: sample %v, logits %v", item.ID, end, len(l.tokens), item.Sample, item.Logits)
	}
	if !item.Sample {
		return sched.Result{}, false
	}
	if l.every && l.scored < l.prompt {
		m.t.Fatalf("sequence %d: logits for %d of %d prompt tokens", item.ID, l.scored, l.prompt)
	}
	token := int32(h.Sum32() % 1000)
	l.tokens = append(l.tokens, token)
	done := len(l.tokens) == l.max || token%16 == 0
	return sched.Result{ID: item.ID, Token: token, Done: done}, true
}

func TestLateResultIsIgnored(t *testing.T) {
	p := block.New(4, 2)
	s := sched.New(sched.Config{Budget: 4, Seats: 2}, p)
	if err := s.Add(sched.Request{ID: 1, Prompt: []int32{5}, Max: 4}); err != nil {
		t.Fatal(err)
	}
	s.Schedule()
	s.Abort(1)
	s.Update([]sched.Result{{ID: 1, Token: 3}})
	if got, want := s.Stats(), (sched.Stats{BlocksTotal: 4}); got != want {
		t.Errorf("after the abort: %+v, want %+v", got, want)
	}
}

func TestPromptIsNotWrittenTo(t *testing.T) {
	p := block.New(8, 2)
	s := sched.New(sched.Config{Budget: 8, Seats: 2}, p)
	shared := append(make([]int32, 0, 8), 1, 2, 3)
	for id := range sched.ID(2) {
		if err := s.Add(sched.Request{ID: id, Prompt: shared, Max: 6}); err != nil {
			t.Fatal(err)
		}
	}
	s.Schedule()
	s.Update([]sched.Result{{ID: 0, Token: 8}, {ID: 1, Token: 9}})
	var got []int32
	for _, item := range s.Schedule().Items {
		got = append(got, item.Tokens...)
	}
	if want := []int32{8, 9}; !slices.Equal(got, want) {
		t.Errorf("two sequences with one prompt: next tokens %v, want %v", got, want)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []sched.Config{{}, {Budget: 1, Seats: 2}, {Budget: -1, Seats: -1}} {
		if c.Validate() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if err := (sched.Config{Budget: 2, Seats: 2}).Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkStep(b *testing.B) {
	p := block.New(1<<16, 16)
	s := sched.New(sched.Config{Budget: 2048, Seats: 256}, p)
	var next sched.ID
	results := make([]sched.Result, 0, 256)
	for b.Loop() {
		for s.Stats().Running+s.Stats().Waiting < 256 {
			next++
			if err := s.Add(sched.Request{ID: next, Prompt: make([]int32, 64), Max: 264}); err != nil {
				b.Fatal(err)
			}
		}
		results = results[:0]
		for _, item := range s.Schedule().Items {
			if item.Sample {
				results = append(results, sched.Result{ID: item.ID, Token: 1})
			}
		}
		s.Update(results)
	}
}
