package constrain

import (
	"math/bits"
	"slices"
)

// tokens is a set of tokens: a list of few, or a bitmap of many, and a shared set.
type tokens struct {
	list   []int32
	bits   []uint64
	shared []uint64
}

func (t *tokens) set(dst []uint64) {
	for _, id := range t.list {
		dst[id>>6] |= 1 << (id & 63)
	}
	for i, w := range t.bits {
		dst[i] |= w
	}
	for i, w := range t.shared {
		dst[i] |= w
	}
}

func (t *tokens) bytes() int { return 64 + 4*len(t.list) + 8*len(t.bits) }

func compact(mask []uint64) *tokens {
	n := 0
	for _, w := range mask {
		n += bits.OnesCount64(w)
	}
	if n > len(mask) {
		return &tokens{bits: append([]uint64(nil), mask...)}
	}
	t := &tokens{list: make([]int32, 0, n)}
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			t.list = append(t.list, int32(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return t
}

// local is the part of a mask that does not depend on the stack.
type local struct {
	inside  *tokens // that end within the rule or at its end
	trie    []branch
	escapes []int32 // nodes of the trie where the rule may end and longer tokens continue
	work    int
}

// maxWork bounds a walk, in threads times trie nodes. Beyond it the walk tries single bytes only: fewer tokens, never
// none. The result does not depend on cached data.
const maxWork = 1 << 21

// maskOf returns the tokens that may follow a state, except end tokens.
func (m *machine) maskOf(s *state) *tokens {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.mask == nil {
		m.tidy()
	}
	return m.tokensOf(s)
}

func (m *machine) tokensOf(s *state) *tokens {
	if s.mask != nil {
		return s.mask
	}
	w := walk{machine: m, trie: m.vocab.trie, mask: make([]uint64, Words(m.vocab.size)), work: 2 * maxWork, outside: true}
	for lo := 0; lo < len(s.threads); {
		hi := lo
		for hi < len(s.threads) && s.threads[hi].frame == s.threads[lo].frame {
			hi++
		}
		w.group(s.threads[lo:hi])
		lo = hi
	}
	s.mask = compact(w.mask)
	m.spent += 2*maxWork - w.work
	m.keep(s, s.mask.bytes())
	return s.mask
}

func (m *machine) keep(s *state, bytes int) {
	m.masked = append(m.masked, s)
	m.maskSize += bytes
}

func (m *machine) tidy() {
	if m.weight > maxWeight {
		m.reset()
	}
	if m.maskSize > maxMasks {
		m.forgetMasks()
	}
}

func (m *machine) forgetMasks() {
	for _, s := range m.masked {
		s.mask, s.local = nil, nil
	}
	m.masked, m.maskSize = nil, 0
}

// walk collects the tokens of one state.
type walk struct {
	machine *machine
	trie    []branch
	mask    []uint64
	work    int
	escapes []int32
	outside bool // outside the innermost rule ends of rules are followed, not recorded
}

// group adds the tokens of threads that share a frame.
//
//  1. The part within their rule is cached for all frames.
//  2. If the rule can end within a token, the walk continues after the rule in this frame.
func (w *walk) group(threads []thread) {
	m := w.machine
	s := m.inner(threads)
	if w.work < 0 {
		m.path[0] = s
		w.subtree(0, int32(len(w.trie)))
		return
	}
	l := m.localOf(s) // 1
	w.work -= l.work
	l.inside.set(w.mask)
	f := threads[0].frame
	if f == m.bottom || len(l.escapes) == 0 {
		return
	}
	after := m.returned(f) // 2
	if after == dead || after == crowded {
		return
	}
	all := w.trie
	w.trie = l.trie
	for _, at := range l.escapes {
		n := &w.trie[at]
		m.path[n.depth+1] = after
		w.subtree(at+1, n.end)
	}
	w.trie = all
}

// inner gives threads the bottom as their frame.
func (m *machine) inner(threads []thread) *state {
	inner := make([]thread, len(threads))
	for i, t := range threads {
		inner[i] = thread{t.place, t.count, m.bottom}
	}
	return m.intern(inner, false)
}

func (m *machine) localOf(s *state) *local {
	if s.local == nil {
		w := walk{machine: m, trie: m.vocab.trie, mask: make([]uint64, Words(m.vocab.size)), work: maxWork}
		var shared []uint64
		if n := m.plain(s.threads); n > 0 {
			w.trie, shared = m.vocab.rest, m.vocab.plain[n]
		}
		m.path[0] = s
		w.subtree(0, int32(len(w.trie)))
		s.local = &local{inside: compact(w.mask), trie: w.trie, escapes: w.escapes, work: maxWork - w.work}
		s.local.inside.shared = shared
		m.keep(s, s.local.inside.bytes()+4*len(w.escapes))
	}
	return s.local
}

// plain returns how many plain characters may follow threads of one rule, at most as many as the vocabulary
// distinguishes; 0 if none or unknown.
func (m *machine) plain(threads []thread) int {
	most := len(m.vocab.plain) - 1
	n, others := 0, false
	for _, t := range threads {
		p := &m.program.places[t.place]
		switch {
		case p.free && m.program.loops[p.loop].max < 0:
			return most
		case p.free:
			l := &m.program.loops[p.loop]
			n, others = max(n, int(l.max-t.count)), others || l.open
		default:
			others = others || m.program.beginsPlain(t.place, false)
		}
	}
	if others && n < most { // they may continue after the count ends
		return 0
	}
	return min(n, most)
}

// beginsPlain reports whether a plain character may come next by a byte, or with calls by a call.
func (p *program) beginsPlain(at int32, calls bool) bool {
	return slices.ContainsFunc(p.out.of(at), func(a arc) bool {
		return calls && a.rule >= 0 || a.rule == byByte && (beginsPlain(a.hi) || a.hi > ' ' && a.lo < a.hi)
	})
}

func beginsPlain(b byte) bool { return b >= ' ' && b != '"' && b != '\\' }

// subtree walks the adjacent nodes lo to hi of the trie; the machine's path holds the state above them.
func (w *walk) subtree(lo, hi int32) {
	m := w.machine
	trie, class, path := w.trie, &m.program.class, m.path
	work := w.work
	for i := lo; i < hi; {
		n := &trie[i]
		s := path[n.depth].next[class[n.b]]
		if s == nil {
			before := m.spent
			s = m.step(path[n.depth], n.b)
			work -= m.spent - before
		}
		if s == dead || s == crowded {
			i = n.end
			continue
		}
		if n.token >= 0 {
			w.mask[n.token>>6] |= 1 << (n.token & 63)
			if n.many {
				w.others(n.token)
			}
		}
		if work -= 1 + len(s.threads); work < 0 {
			i = n.end
			continue
		}
		i++
		if i == n.end {
			continue
		}
		if s.end && !w.outside {
			w.escapes = append(w.escapes, i-1)
		}
		path[n.depth+1] = s
	}
	w.work = work
}

func (w *walk) others(token int32) {
	for _, id := range w.machine.vocab.more[token] {
		w.mask[id>>6] |= 1 << (id & 63)
	}
}
