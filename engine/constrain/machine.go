package constrain

import (
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"
)

// Beyond the first two cached data is dropped; beyond the others a text is rejected.
const (
	maxWeight  = 1 << 21  // threads and edges of all states
	maxMasks   = 16 << 20 // bytes
	maxThreads = 2048     // of one state
	maxSeen    = 16384
)

// frame is where a text may return when a rule ends: all places that called the rule at the same point of the text,
// each with its own frame. So even an ambiguous text has no more frames than rules.
type frame struct {
	id      int32
	returns []thread // nil: the bottom
	after   *state   // nil until needed

	made  *frame // the unique frame with these returns; nil until known
	empty bool   // the rule may be empty; only while a closure is computed
}

type thread struct {
	place int32
	count int32 // of the place's loop
	frame *frame
}

// state is the set of places where a text may be. Only next, mask and local change after creation.
type state struct {
	threads []thread // with edges
	end     bool
	next    []*state // by byte class; nil until needed
	mask    *tokens  // nil until needed
	local   *local   // of a state whose only frame is the bottom
}

// dead is the state of a text that has left the form, crowded of one in too many places at once.
var dead, crowded = &state{}, &state{}

var errCrowded = formError("it is too ambiguous: a text may be in more than %d places of it at once; want fewer alternatives that begin alike", maxThreads)

// threadSize is the bytes of a thread in a state and in its key.
const threadSize = int(unsafe.Sizeof(thread{})) + 8

// machine is the pushdown automaton of a program over a vocabulary.
type machine struct {
	program *program
	vocab   *Vocabulary

	// mu guards everything below and the changing fields of states and frames. Callers of all methods but Matcher and
	// maskOf hold it.
	mu       sync.Mutex
	bottom   *frame
	start    *state
	frames   map[string]*frame
	states   map[string]*state
	nextID   int32
	masked   []*state // with mask or local
	maskSize int
	weight   int
	spent    int

	// for closure and walk
	seen  map[thread]struct{}
	calls map[int32]*frame
	stack []thread
	key   []byte
	path  []*state
}

func newMachine(p *program, v *Vocabulary) *machine {
	m := &machine{program: p, vocab: v, bottom: &frame{}, seen: map[thread]struct{}{}, calls: map[int32]*frame{}, path: make([]*state, v.deep+1)}
	m.reset()
	return m
}

// States held by matchers stay valid.
func (m *machine) reset() {
	m.frames, m.states, m.weight = map[string]*frame{}, map[string]*state{}, 0
	m.forgetMasks()
	m.start = m.closure([]thread{{m.program.starts[0], 0, m.bottom}}) // the old one leads to the dropped states
}

// closure returns the state of all places reachable from threads without a byte.
//
//  1. A call goes to the rule's beginning, with a frame shared by all calls of the rule here.
//  2. The end of a rule continues wherever its frame returns to; if the rule may be empty, also after later calls of
//     it.
//  3. When all calls are known, frames are replaced by the unique ones with the same returns.
func (m *machine) closure(from []thread) *state {
	clear(m.seen)
	clear(m.calls)
	m.stack = m.stack[:0]
	var threads []thread
	end := false
	push := func(t thread) {
		if _, ok := m.seen[t]; !ok && len(m.seen) < maxSeen {
			m.seen[t] = struct{}{}
			m.stack = append(m.stack, t)
		}
	}
	defer func() { m.spent += len(m.seen) }()
	for i := len(from) - 1; i >= 0; i-- {
		push(from[i])
	}
	for len(m.stack) > 0 {
		t := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		count, ok := m.program.count(t)
		if !ok {
			continue
		}
		moves := false
		for _, a := range m.program.out.of(t.place) {
			switch f := t.frame; {
			case a.rule == byNothing:
				push(thread{a.to, count, f})
			case a.rule == byByte:
				moves = true
			default: // 1
				if !m.program.last[a.to] {
					f = m.call(a, t, push)
				}
				push(thread{m.program.starts[a.rule], 0, f})
			}
		}
		if moves {
			threads = append(threads, t)
		}
		if m.program.places[t.place].final { // 2
			end = end || t.frame == m.bottom
			t.frame.empty = t.frame.id == 0
			for _, r := range t.frame.returns {
				push(r)
			}
		}
		if len(m.seen) >= maxSeen || len(threads) > maxThreads {
			return crowded
		}
	}
	for i := range threads { // 3
		threads[i].frame = m.settle(threads[i].frame)
	}
	return m.intern(threads, end)
}

// count returns a thread's iterations after its place, and whether its loop may continue there.
func (p *program) count(t thread) (int32, bool) {
	q, n := &p.places[t.place], t.count
	if q.loop == 0 {
		return n, true
	}
	switch l := &p.loops[q.loop]; {
	case q.at == enter:
		return n, l.max < 0 || n < l.max
	case q.at == leave:
		return 0, n >= l.min
	case q.at == again && l.max < 0: // counts above the minimum are equivalent
		return min(n+1, l.min), true
	case q.at == again:
		return n + 1, true
	case l.lengths != nil && l.max < 0:
		return n, l.lengths.has(t.place-l.base, l.min-n, maxNodes)
	case l.lengths != nil:
		return n, l.lengths.has(t.place-l.base, max(l.min-n, 0), l.max-n)
	}
	return n, true
}

func (m *machine) call(c arc, from thread, push func(thread)) *frame {
	f := m.calls[c.rule]
	if f == nil {
		f = &frame{}
		m.calls[c.rule] = f
	}
	to := thread{c.to, from.count, from.frame}
	f.returns = append(f.returns, to)
	if f.empty {
		push(to)
	}
	return f
}

// settle returns the unique frame with f's returns.
func (m *machine) settle(f *frame) *frame {
	if f.id != 0 || f == m.bottom {
		return f
	}
	if f.made != nil {
		return f.made
	}
	returns := make([]thread, len(f.returns))
	for i, r := range f.returns {
		returns[i] = thread{r.place, r.count, m.settle(r.frame)}
	}
	slices.SortFunc(returns, compareThreads)
	returns = slices.Compact(returns)
	key := string(m.keyOf(returns))
	if f.made = m.frames[key]; f.made == nil {
		m.nextID++
		f.made = &frame{id: m.nextID, returns: returns}
		m.frames[key] = f.made
		m.weight += 4 + 2*len(returns)
	}
	return f.made
}

func compareThreads(a, b thread) int {
	if a.frame.id != b.frame.id {
		return int(a.frame.id) - int(b.frame.id)
	}
	if a.place != b.place {
		return int(a.place) - int(b.place)
	}
	return int(a.count) - int(b.count)
}

// The key is valid until the next call.
func (m *machine) keyOf(threads []thread) []byte {
	m.key = m.key[:0]
	for _, t := range threads {
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(t.place))
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(t.count))
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(t.frame.id))
	}
	return m.key
}

// intern sorts threads.
func (m *machine) intern(threads []thread, end bool) *state {
	if len(threads) == 0 && !end {
		return dead
	}
	slices.SortFunc(threads, compareThreads)
	key := m.keyOf(threads)
	if end {
		key = append(key, 1)
	}
	s := m.states[string(key)]
	if s == nil {
		s = &state{threads: slices.Clone(threads), end: end, next: make([]*state, len(m.program.samples))}
		m.states[string(key)] = s
		m.weight += len(threads) + len(s.next) + 8
	}
	return s
}

func (m *machine) step(s *state, b byte) *state {
	class := m.program.class[b]
	if s == dead || s == crowded {
		return s
	}
	if next := s.next[class]; next != nil {
		return next
	}
	var to []thread
	for _, t := range s.threads {
		for _, a := range m.program.out.of(t.place) {
			if a.lo <= b && b <= a.hi {
				to = append(to, thread{a.to, t.count, t.frame})
			}
		}
	}
	next := dead
	if len(to) > 0 {
		next = m.closure(to)
	}
	s.next[class] = next
	return next
}

func (m *machine) returned(f *frame) *state {
	if f.after == nil {
		f.after = m.closure(f.returns)
	}
	return f.after
}

func (m *machine) Matcher() Matcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &matcher{machine: m, at: m.start}
}

type matcher struct {
	machine *machine
	at      *state
	ended   bool
}

func (t *matcher) Mask(dst []uint64) {
	clear(dst)
	v := t.machine.vocab
	if !t.ended {
		t.machine.maskOf(t.at).set(dst)
	}
	if t.ended || t.at.end {
		for _, id := range v.ends {
			dst[id>>6] |= 1 << (id & 63)
		}
	}
}

func (t *matcher) Accept(token int32) error {
	m := t.machine
	if token < 0 || int(token) >= m.vocab.size {
		return ErrForbidden
	}
	if m.vocab.isEnd[token] {
		if !t.ended && !t.at.end {
			return ErrForbidden
		}
		t.ended = true
		return nil
	}
	piece := m.vocab.piece(token)
	if t.ended || len(piece) == 0 {
		return ErrForbidden
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tidy()
	at := t.at
	for _, b := range piece {
		if at = m.step(at, b); at == dead {
			return ErrForbidden
		}
	}
	if err := m.usable(at); err != nil {
		return err
	}
	t.at = at
	return nil
}

func (m *machine) usable(s *state) error {
	if s.end {
		return nil
	}
	for _, t := range s.threads {
		for _, a := range m.program.out.of(t.place) {
			if a.rule == byByte && m.step(s, a.lo) != crowded {
				return nil
			}
		}
	}
	return errCrowded
}

func (t *matcher) Done() bool { return t.ended || t.at.end && len(t.at.threads) == 0 }

// Bytes returns about how much memory a grammar holds.
func Bytes(g Grammar) int {
	m, ok := g.(*machine)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.program.bytes + m.maskSize + m.weight*threadSize
}
