package constrain

import (
	"encoding/binary"
	"slices"
	"sort"
)

// search is an automaton over characters for the texts in which a pattern with conditions is found. Its state is the
// state in the pattern, the kind of the previous character, and the conditions on the rest of the text.
//
//  1. A pattern is a list of instructions; a look-ahead has its own list.
//  2. Characters are divided into kinds that no instruction distinguishes.
//  3. A condition on the rest of the text is a set of places in an automaton of the look-ahead, which is made
//     deterministic so that it can be negated.
//  4. Word boundaries are look-aheads of one character, which depend on the previous character.
type search struct {
	*meter
	main  []inst
	looks []look
	kinds []class
	words []bool // whether a kind is in \w
	edges bool   // there are word boundaries
}

type inst struct {
	op   instOp
	set  class
	has  []bool // opChar: by kind
	x, y int32
}

type instOp uint8

const (
	instChar  instOp = iota // one of set, then x
	instSplit               // x or y
	instBegin               // at the beginning, then x
	instEnd                 // at the end, then x
	instLook                // look y holds for the rest, then x
	instEdge
	instInside
	instFound
)

// look is a condition on the rest of a text. In place 0 it holds whatever follows.
type look struct {
	code []inst
	not  bool

	places [][]int32 // sets of instructions; negative ones are after instEnd
	ids    map[string]int32
	next   [][]int32 // by place and kind; -1: not computed yet
	final  []bool    // it holds if the text ends here
}

func newSearch(m *meter, n *node) *search {
	s := &search{meter: m}
	// Anything, the pattern, anything.
	any := &node{op: opRepeat, subs: []*node{{op: opSet, set: anyChar()}}, max: -1}
	s.main = s.compile(nil, &node{subs: []*node{any, n, any}}, true)
	s.main = append(s.main, inst{op: instFound})
	s.divide()
	return s
}

// emit adds an instruction; the caller sets its targets.
func (s *search) emit(code []inst, i inst) []inst {
	if len(code) > maxNodes {
		s.spend(maxSteps, 0)
	}
	s.spend(1, 64)
	return append(code, i)
}

// compile adds the instructions of a node, which continue at the instruction after them.
func (s *search) compile(code []inst, n *node, top bool) []inst {
	if s.err != nil {
		return code
	}
	switch n.op {
	case opConcat:
		for _, sub := range n.subs {
			code = s.compile(code, sub, top)
		}
	case opSet:
		return s.emit(code, inst{op: instChar, set: n.set, x: next(code) + 1})
	case opAlternate:
		return s.alternate(code, n.subs, top)
	case opRepeat:
		return s.repeat(code, n, top)
	case opEnd:
		return s.emit(code, inst{op: instEnd, x: next(code) + 1})
	default:
		return s.condition(code, n, top)
	}
	return code
}

// next returns the index of the next instruction.
func next(code []inst) int32 { return int32(len(code)) }

// alternate adds several nodes, of which one must match.
func (s *search) alternate(code []inst, subs []*node, top bool) []inst {
	var ends []int32
	for i, sub := range subs {
		if i == len(subs)-1 {
			code = s.compile(code, sub, top)
			break
		}
		split := next(code)
		code = s.emit(code, inst{op: instSplit, x: split + 1})
		code = s.compile(code, sub, top)
		ends = append(ends, next(code))
		code = s.emit(code, inst{op: instSplit})
		code[split].y = next(code)
	}
	for _, e := range ends {
		code[e].x, code[e].y = next(code), next(code)
	}
	return code
}

// repeat adds a node as often as it must match, then as often as it may match.
func (s *search) repeat(code []inst, n *node, top bool) []inst {
	for range n.min {
		code = s.compile(code, n.subs[0], top)
	}
	if n.max < 0 {
		split := next(code)
		code = s.emit(code, inst{op: instSplit, x: split + 1})
		code = s.compile(code, n.subs[0], top)
		code = s.emit(code, inst{op: instSplit, x: split, y: split})
		code[split].y = next(code)
		return code
	}
	var splits []int32
	for range n.max - n.min {
		splits = append(splits, next(code))
		code = s.emit(code, inst{op: instSplit, x: next(code) + 1})
		code = s.compile(code, n.subs[0], top)
		if s.err != nil {
			return code
		}
	}
	for _, split := range splits {
		code[split].y = next(code)
	}
	return code
}

// condition adds a condition that is allowed in the pattern itself only, not in a look-ahead.
func (s *search) condition(code []inst, n *node, top bool) []inst {
	i := inst{x: int32(len(code)) + 1}
	switch {
	case !top:
		s.fail("a pattern of the schema has ^, \\b or a look ahead within a look ahead, which is not supported")
	case n.op == opBegin:
		i.op = instBegin
	case n.op == opAhead:
		i.op, i.y = instLook, int32(len(s.looks))
		body := append(s.compile(nil, n.subs[0], false), inst{op: instFound})
		s.looks = append(s.looks, look{code: body, not: n.not, ids: map[string]int32{}})
	default:
		s.edges = true
		i.op = instEdge
		if n.op == opInside {
			i.op = instInside
		}
	}
	return s.emit(code, i)
}

// divide finds the kinds of characters:
//
//  1. It collects the sets of all instructions, and first the set of word characters.
//  2. It cuts the characters where one of the sets begins or ends.
//  3. Pieces between cuts that are in the same sets are one kind.
func (s *search) divide() {
	sets, users := s.sets() // 1
	cuts := []rune{0}
	for _, c := range sets { // 2
		for _, r := range c {
			cuts = append(cuts, r.lo, r.hi+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if !s.spend(len(cuts)*len(sets), len(cuts)*len(sets)/8) {
		return
	}
	groups := map[string]int{}
	has := make([][]bool, len(sets)) // by set, then by kind
	for i, lo := range cuts {        // 3
		hi := rune(0x10FFFF)
		if i+1 < len(cuts) {
			hi = cuts[i+1] - 1
		}
		if lo > hi {
			continue
		}
		key := make([]byte, len(sets))
		for j, c := range sets {
			if c.contains(lo) {
				key[j] = 1
			}
		}
		g, ok := groups[string(key)]
		if !ok {
			g = len(s.kinds)
			groups[string(key)] = g
			s.kinds = append(s.kinds, nil)
			s.words = append(s.words, key[0] == 1)
			for j := range sets {
				has[j] = append(has[j], key[j] == 1)
			}
		}
		s.kinds[g] = append(s.kinds[g], span{lo, hi})
	}
	for _, i := range users {
		i.has = has[i.y]
	}
}

// sets returns the distinct sets of all instructions, and the instructions with a set, whose y is its index.
func (s *search) sets() (sets []class, users []*inst) {
	sets = []class{wordsNarrow}
	all := [][]inst{s.main}
	for i := range s.looks {
		all = append(all, s.looks[i].code)
	}
	known := map[string]int{}
	for _, code := range all {
		for j := range code {
			if code[j].op != instChar {
				continue
			}
			key := make([]byte, 0, 8*len(code[j].set))
			for _, r := range code[j].set {
				key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(key, uint32(r.lo)), uint32(r.hi))
			}
			n, ok := known[string(key)]
			if !ok {
				n = len(sets)
				known[string(key)] = n
				sets = append(sets, code[j].set.normal())
			}
			code[j].y = int32(n)
			users = append(users, &code[j])
			s.spend(1+len(code[j].set), 16)
		}
	}
	return sets, users
}

// contains reports whether a normalized class has a character.
func (c class) contains(r rune) bool {
	i := sort.Search(len(c), func(i int) bool { return c[i].hi >= r })
	return i < len(c) && c[i].lo <= r
}

// set returns the place of a set of instructions and everything reachable from them; 0 if the look holds there.
func (s *search) set(l *look, from []int32) int32 {
	seen := map[int32]bool{}
	queue := slices.Clone(from)
	var here []int32
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[at] || !s.spend(3, 0) {
			continue
		}
		seen[at] = true
		ended := at < 0 // nothing may follow
		pc := at
		if ended {
			pc = -at - 1
		}
		to := func(x int32) int32 {
			if ended {
				return -x - 1
			}
			return x
		}
		switch i := &l.code[pc]; i.op {
		case instSplit:
			queue = append(queue, to(i.x), to(i.y))
		case instEnd:
			queue = append(queue, -i.x-1)
		case instFound:
			if !ended {
				here = []int32{at}
				return s.place(l, here)
			}
			here = append(here, at)
		case instChar:
			if !ended {
				here = append(here, at)
			}
		}
	}
	slices.Sort(here)
	return s.place(l, here)
}

// place returns the number of a set.
func (s *search) place(l *look, here []int32) int32 {
	key := make([]byte, 0, 4*len(here))
	for _, at := range here {
		key = binary.LittleEndian.AppendUint32(key, uint32(at))
	}
	n, ok := l.ids[string(key)]
	if !ok {
		n = int32(len(l.places))
		l.ids[string(key)] = n
		l.places = append(l.places, here)
		found := slices.ContainsFunc(here, func(at int32) bool {
			return at < 0 || l.code[at].op == instFound
		})
		l.final = append(l.final, found != l.not)
		l.next = append(l.next, slices.Repeat([]int32{-1}, len(s.kinds)))
		s.spend(1, 64+8*len(here)+4*len(s.kinds))
	}
	return n
}

// settled reports whether the condition always or never holds from a place on.
func (l *look) settled(at int32) (yes, no bool) {
	here := l.places[at]
	found := len(here) == 1 && here[0] >= 0 && l.code[here[0]].op == instFound
	lost := len(here) == 0
	if l.not {
		found, lost = lost, found
	}
	return found, lost
}

// after returns the place of a look after a character.
func (s *search) after(l *look, at int32, kind int) int32 {
	if n := l.next[at][kind]; n >= 0 {
		return n
	}
	var to []int32
	for _, pc := range l.places[at] {
		if pc >= 0 && l.code[pc].op == instChar && l.code[pc].has[kind] {
			to = append(to, l.code[pc].x)
		}
	}
	n := s.set(l, to)
	l.next[at][kind] = n
	return n
}
