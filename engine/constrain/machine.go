package constrain

import (
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"
)

// Limits of a machine. Beyond the first two it forgets what it can make again.
// Where a text would be in more places at once than the others say, it may not go.
const (
	maxWeight  = 1 << 19  // threads and edges of all states
	maxMasks   = 16 << 20 // bytes
	maxThreads = 2048     // of one state
	maxSeen    = 16384    // places on the way to them
)

// frame is the place to return to when a rule ends, in its surroundings.
type frame struct {
	id     int32
	ret    int32
	parent *frame // nil: the bottom, where the text ends
	after  *state // where the text goes on when the rule ends; nil until needed
}

// thread is one of the places where a text may be.
type thread struct {
	place int32
	frame *frame
}

// state is all places where a text may be. Only next, mask and local change after it was made.
type state struct {
	threads []thread // those with edges
	end     bool     // the text may end here
	next    []*state // by class of the byte; nil until needed
	mask    *tokens  // what may come next; nil until needed
	local   *local   // of a state whose only frame is the bottom
}

// dead is where no text of the form goes; crowded is where it would be in too many places at once.
var dead, crowded = &state{}, &state{}

// errCrowded is the form's fault.
var errCrowded = formError("it is too ambiguous: a text may be in more than %d places of it at once; want fewer alternatives that begin alike", maxThreads)

// threadSize is what a thread takes in a state and in the key that finds it, in bytes.
const threadSize = int(unsafe.Sizeof(thread{})) + 8

type frameKey struct {
	ret    int32
	parent *frame
}

// machine is the pushdown automaton of a program over a vocabulary. Its states
// are made when a text reaches them.
type machine struct {
	program *program
	vocab   *Vocabulary

	// mu guards everything below and the changing fields of states and frames.
	mu       sync.Mutex
	bottom   *frame
	start    *state
	frames   map[frameKey]*frame
	states   map[string]*state
	nextID   int32
	masked   []*state // with a mask or local
	maskSize int      // bytes
	weight   int      // threads and edges of all states
	spent    int      // work in all

	// scratch of closure and walk
	seen  map[thread]struct{}
	stack []thread
	key   []byte
	path  []*state
}

func newMachine(p *program, v *Vocabulary) *machine {
	m := &machine{program: p, vocab: v, bottom: &frame{}, seen: map[thread]struct{}{}, path: make([]*state, v.deep+1)}
	m.reset()
	m.start = m.closure([]thread{{p.starts[0], m.bottom}})
	return m
}

// reset forgets all states and frames. Those that matchers are in stay good: they lead to new ones.
func (m *machine) reset() {
	m.frames, m.states, m.weight = map[frameKey]*frame{}, map[string]*state{}, 0
	m.forgetMasks()
}

// push returns the frame for a return to a place.
func (m *machine) push(ret int32, parent *frame) *frame {
	key := frameKey{ret, parent}
	f := m.frames[key]
	if f == nil {
		m.nextID++
		f = &frame{id: m.nextID, ret: ret, parent: parent}
		m.frames[key] = f
		m.weight += 4
	}
	return f
}

// closure is the state of everything that is reached from threads without a byte.
func (m *machine) closure(from []thread) *state {
	clear(m.seen)
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
		p := &m.program.places[t.place]
		if len(p.edges) > 0 {
			threads = append(threads, t)
		}
		for _, s := range p.skips {
			push(thread{s, t.frame})
		}
		for _, c := range p.calls {
			f := t.frame
			if !m.program.last[c.to] {
				f = m.push(c.to, f)
			}
			push(thread{m.program.starts[c.rule], f})
		}
		if p.final && t.frame.parent == nil {
			end = true
		} else if p.final {
			push(thread{t.frame.ret, t.frame.parent})
		}
		if len(m.seen) >= maxSeen || len(threads) > maxThreads {
			return crowded
		}
	}
	return m.intern(threads, end)
}

// intern returns the one state of a set of threads.
func (m *machine) intern(threads []thread, end bool) *state {
	if len(threads) == 0 && !end {
		return dead
	}
	slices.SortFunc(threads, func(a, b thread) int {
		if a.frame.id != b.frame.id {
			return int(a.frame.id) - int(b.frame.id)
		}
		return int(a.place) - int(b.place)
	})
	key := m.key[:0]
	for _, t := range threads {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.place))
		key = binary.LittleEndian.AppendUint32(key, uint32(t.frame.id))
	}
	if end {
		key = append(key, 1)
	}
	m.key = key
	s := m.states[string(key)]
	if s == nil {
		s = &state{threads: slices.Clone(threads), end: end, next: make([]*state, len(m.program.samples))}
		m.states[string(key)] = s
		m.weight += len(threads) + len(s.next) + 8
	}
	return s
}

// step is the state after a byte.
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
		for _, e := range m.program.places[t.place].edges {
			if e.lo <= b && b <= e.hi {
				to = append(to, thread{e.to, t.frame})
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

// returned is the state after the rule of a frame has ended.
func (m *machine) returned(f *frame) *state {
	if f.after == nil {
		f.after = m.closure([]thread{{f.ret, f.parent}})
	}
	return f.after
}

// Matcher implements [Grammar].
func (m *machine) Matcher() Matcher { return &matcher{machine: m, at: m.start} }

// matcher is one text's place in a machine.
type matcher struct {
	machine *machine
	at      *state
	ended   bool
}

// Mask implements [Matcher].
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

// Accept implements [Matcher].
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

// usable fails if a state is too crowded to go on from. It finds out by making the mask that is asked for next.
func (m *machine) usable(s *state) error {
	if s == crowded || len(s.threads) == 0 && !s.end {
		return errCrowded
	}
	if !s.end && m.tokensOf(s).empty() {
		return errCrowded
	}
	return nil
}

// Done implements [Matcher].
func (t *matcher) Done() bool { return t.ended || t.at.end && len(t.at.threads) == 0 }
