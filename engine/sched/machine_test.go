package sched_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// machine is an engine and its worker around a scheduler, with a model that is a pure function of the tokens so far.
// Each slot of each block holds a hash of what its position has seen. Whatever the scheduler does, a sequence must
// find its own past there, and end with the same tokens as when it runs alone.
type machine struct {
	t     *testing.T
	r     *rand.Rand
	cfg   sched.Config
	pool  *block.Pool
	sched *sched.Scheduler

	slots   [][]uint64          // the worker's: the hash of each slot of each block
	states  map[sched.ID]*state // the worker's: the sequences that it has not been told to forget
	flights []outputs           // the worker's: outputs that the engine has not seen

	live   map[sched.ID]*life // the engine's: sequences that have not ended
	order  []sched.ID         // of live, by arrival
	last   sched.ID
	copies int // blocks copied
	extra  int // tokens that were chosen after an end

	words   []string       // the last batch
	results []sched.Result // the last results
}

// state is the worker's record of a sequence.
type state struct {
	life   *life
	tokens []int32
	blocks []int32
	pooled int // positions whose hidden states it has added up
}

// life is a sequence as its client sees it.
type life struct {
	req    sched.Request
	index  int  // among its siblings
	cyclic bool // the model repeats itself, so that guesses are right
	want   []int32
	tokens []int32
	scored *[]bool // by prompt position, of all siblings
	over   bool
}

type output struct {
	id     sched.ID
	life   *life
	tokens []int32
	pool   bool
}

type outputs struct {
	step uint64
	list []output
}

const vocabulary = 6

func newMachine(t *testing.T, r *rand.Rand, cfg sched.Config, pool *block.Pool) *machine {
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, r: r, cfg: cfg, pool: pool, sched: sched.New(cfg, pool), live: map[sched.ID]*life{}}
	m.restart()
	return m
}

// restart replaces the worker by a new one without state.
func (m *machine) restart() {
	m.states, m.flights = map[sched.ID]*state{}, nil
	m.slots = make([][]uint64, m.pool.Count())
	for i := range m.slots {
		m.slots[i] = make([]uint64, m.pool.Size())
	}
}

// see returns the hash of a position with this token after its predecessor's hash.
func see(past uint64, root block.Hash, token int32) uint64 {
	h := fnv.New64a()
	for i := range 8 {
		h.Write([]byte{byte(past >> (8 * i))})
	}
	h.Write(root[:])
	h.Write([]byte{byte(token), byte(token >> 8)})
	return h.Sum64()
}

// choose is the model: the token after the given ones, at the end of which the past was seen. Token
// 0 ends a sequence.
func (l *life) choose(tokens []int32, past uint64) int32 {
	if l.cyclic {
		return 1 + tokens[len(tokens)-1]%4
	}
	x := past*0x9e3779b97f4a7c15 + uint64(l.index)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	if x%32 == 0 {
		return 0
	}
	return 1 + int32(x>>8%(vocabulary-1))%(vocabulary-1)
}

// alone returns the tokens that a sequence gets when it runs alone.
func (l *life) alone() []int32 {
	tokens := slices.Clone(l.req.Prompt)
	past := uint64(0)
	for _, t := range tokens {
		past = see(past, l.req.Root, t)
	}
	for !l.req.Pool && len(tokens) < l.req.Max {
		t := l.choose(tokens, past)
		tokens = append(tokens, t)
		if t == 0 {
			break
		}
		past = see(past, l.req.Root, t)
	}
	return tokens
}

// add queues a request, and checks that it fits.
func (m *machine) add(r sched.Request, cyclic bool) {
	r.ID = m.last + 1
	n := max(1, r.Siblings)
	m.last += sched.ID(n)
	if err := m.sched.Add(r); err != nil {
		m.t.Fatal(err)
	}
	scored := make([]bool, len(r.Prompt)-1)
	for i := range n {
		id := r.ID + sched.ID(i)
		l := &life{req: r, index: i, cyclic: cyclic, tokens: slices.Clone(r.Prompt), scored: &scored}
		l.want = l.alone()
		m.live[id] = l
		m.order = append(m.order, id)
	}
	m.check()
}

func (m *machine) forget(id sched.ID) {
	m.live[id].over = true
	delete(m.live, id)
	m.order = slices.DeleteFunc(m.order, func(o sched.ID) bool { return o == id })
}

func (m *machine) abort(id sched.ID) {
	if !m.sched.Abort(id) {
		m.t.Fatalf("abort %d: not there", id)
	}
	m.forget(id)
	m.check()
}

// reset simulates a worker's death.
func (m *machine) reset() {
	late := m.flights
	m.sched.Reset()
	m.restart()
	for _, f := range late {
		if m.sched.Update(f.step, nil) {
			m.t.Fatalf("an output of a dead worker is taken")
		}
	}
	m.check()
}

func (m *machine) check() {
	if err := m.sched.Check(); err != nil {
		m.t.Fatal(err)
	}
}

// schedule asks for a batch and computes it; false if there is none.
func (m *machine) schedule() bool {
	before := len(m.flights)
	batch := m.sched.Schedule()
	m.check()
	m.words = words(batch)
	if batch == nil {
		if before == 0 && len(m.live) > 0 {
			m.t.Fatalf("nothing to do with %d sequences: %+v", len(m.live), m.sched.Stats())
		}
		return false
	}
	if before >= max(1, m.cfg.Depth) {
		m.t.Fatalf("%d batches in flight, and one more: want at most %d", before, m.cfg.Depth)
	}
	m.exclusive(batch)
	for _, id := range batch.Ends {
		if m.states[id] == nil {
			m.t.Fatalf("the worker shall forget %d, which it does not know", id)
		}
		delete(m.states, id)
	}
	for _, c := range batch.Copies {
		copy(m.slots[c.To], m.slots[c.From])
		m.copies++
	}
	out := outputs{step: batch.Step}
	tokens := 0
	for i := range batch.Items {
		tokens += len(batch.Items[i].Tokens)
		if o, ok := m.compute(&batch.Items[i]); ok {
			out.list = append(out.list, o)
		}
	}
	if len(m.states) > m.cfg.Seats {
		m.t.Fatalf("the worker knows %d sequences, and %d may run", len(m.states), m.cfg.Seats)
	}
	if tokens != batch.Tokens || tokens > m.cfg.Budget || len(batch.Items) > m.cfg.Seats {
		m.t.Fatalf("%d tokens (says %d) of %d sequences in a step, want at most %d of %d", tokens, batch.Tokens, len(batch.Items), m.cfg.Budget, m.cfg.Seats)
	}
	m.flights = append(m.flights, out)
	return true
}

// words returns a batch to compare.
func words(b *sched.Batch) (list []string) {
	if b == nil {
		return nil
	}
	for _, it := range b.Items {
		list = append(list, fmt.Sprint(it.ID, " at ", it.Pos, " to ", it.Pos+len(it.Tokens), " in ", it.Blocks, " new ", it.New, " sample ", it.Sample))
	}
	for _, id := range b.Ends {
		list = append(list, fmt.Sprintf("end %d", id))
	}
	return append(list, fmt.Sprint(b.Copies))
}

// exclusive checks that a block that an item writes has no other user.
func (m *machine) exclusive(batch *sched.Batch) {
	seen := map[sched.ID]bool{}
	for _, it := range batch.Items {
		if seen[it.ID] {
			m.t.Fatalf("sequence %d is in the batch twice", it.ID)
		}
		seen[it.ID] = true
		for pos := it.Pos; pos < it.Pos+len(it.Tokens); pos++ {
			b := it.Blocks[pos/m.pool.Size()]
			if n := m.pool.Holders(b); n != 1 {
				m.t.Fatalf("sequence %d writes block %d, which has %d holders", it.ID, b, n)
			}
		}
	}
}

// compute is the worker's part of a step for one sequence.
func (m *machine) compute(it *sched.Item) (output, bool) {
	w := m.enter(it)
	l := w.life
	guesses := len(it.Tokens) - it.Draft
	for i, t := range it.Tokens[:guesses] {
		pos := it.Pos + i
		if pos >= len(w.tokens) || t != w.tokens[pos] && t != sched.Unknown {
			m.t.Fatalf("sequence %d: token %d is %d, the worker has %v", it.ID, pos, t, w.tokens)
		}
		if t == sched.Unknown && pos != len(w.tokens)-1 {
			m.t.Fatalf("sequence %d: token %d is left to the worker, which chose token %d last", it.ID, pos, len(w.tokens)-1)
		}
	}
	known := len(w.tokens)
	w.tokens = append(w.tokens, it.Tokens[guesses:]...)
	end := it.Pos + len(it.Tokens)
	if limit := l.req.Max - 1; end > limit && !l.req.Pool {
		m.t.Fatalf("sequence %d is computed up to %d, with at most %d tokens", it.ID, end, l.req.Max)
	}
	seen := make([]uint64, end)
	past := uint64(0)
	for pos := range end {
		past = see(past, l.req.Root, w.tokens[pos])
		seen[pos] = past
		slot := &m.slots[it.Blocks[pos/m.pool.Size()]][pos%m.pool.Size()]
		if pos >= it.Pos {
			*slot = past
		}
		if *slot != past {
			m.t.Fatalf("sequence %d does not find its token %d in block %d", it.ID, pos, it.Blocks[pos/m.pool.Size()])
		}
	}
	m.side(it, w, end)
	if it.Sample != (end-it.Draft == known) {
		m.t.Fatalf("sequence %d, %d of %d tokens: sample %v", it.ID, end, known, it.Sample)
	}
	if !it.Sample || it.Pool {
		w.tokens = w.tokens[:known]
		return output{id: it.ID, life: l, pool: true}, it.Sample
	}
	for n := known; ; n++ { // the first n tokens are right
		t := l.choose(w.tokens[:n], seen[n-1])
		if n < len(w.tokens) && w.tokens[n] == t {
			continue
		}
		w.tokens = append(w.tokens[:n], t)
		return output{id: it.ID, life: l, tokens: slices.Clone(w.tokens[known:])}, true
	}
}

// enter returns the worker's state of an item's sequence, and updates its blocks.
func (m *machine) enter(it *sched.Item) *state {
	if it.Begin {
		l := m.live[it.ID]
		if l == nil {
			m.t.Fatalf("sequence %d begins and is over", it.ID)
		}
		if !slices.Equal(it.Known, l.tokens) {
			m.t.Fatalf("sequence %d begins with %v, the engine knows %v", it.ID, it.Known, l.tokens)
		}
		m.states[it.ID] = &state{life: l, tokens: slices.Clone(it.Known)}
	}
	w := m.states[it.ID]
	if w == nil || w.life.over && m.cfg.Depth < 2 {
		m.t.Fatalf("sequence %d is in the batch, and over or unknown", it.ID)
	}
	w.blocks = append(w.blocks, it.Blocks[len(it.Blocks)-it.New:]...)
	if !slices.Equal(w.blocks, it.Blocks) {
		m.t.Fatalf("sequence %d has blocks %v, the worker was told of %v", it.ID, it.Blocks, w.blocks)
	}
	return w
}

// side checks the requested outputs besides tokens.
func (m *machine) side(it *sched.Item, w *state, end int) {
	l := w.life
	if it.Score {
		for pos := it.Pos; pos < min(end, len(*l.scored)); pos++ {
			(*l.scored)[pos] = true
		}
	}
	if l.req.Score && it.Sample && slices.Contains(*l.scored, false) {
		m.t.Fatalf("sequence %d: a token is chosen and prompt tokens are not scored: %v", it.ID, *l.scored)
	}
	if it.Pool != l.req.Pool {
		m.t.Fatalf("sequence %d: pool %v", it.ID, it.Pool)
	}
	if it.Pool {
		if w.pooled != it.Pos {
			m.t.Fatalf("sequence %d: hidden states of %d positions, now from %d", it.ID, w.pooled, it.Pos)
		}
		w.pooled = end
	}
	if l.req.Lockstep && !it.Pool {
		if it.Tokens[0] == sched.Unknown || it.Draft > 0 {
			m.t.Fatalf("sequence %d goes in lockstep and has guesses or unknown tokens: %v", it.ID, it.Tokens)
		}
	}
}

// update takes the worker's oldest output, as an engine does.
