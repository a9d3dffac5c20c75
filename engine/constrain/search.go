package constrain

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// search is an automaton over characters for the texts in which a pattern with conditions is found.
//
//  1. A pattern is a list of instructions, which includes the bodies of its look-aheads.
//  2. Characters are divided into kinds that no instruction distinguishes.
//  3. A condition on the rest of the text is a list of instructions at which its body may be, all at once, so that
//     it can be negated. ^x in such a list is the instruction x after $.
//  4. A word boundary is a condition on the next character, which depends on the previous one.
type search struct {
	*meter
	code             []inst // code[0] is opFound
	start, word, end int32  // of the pattern, of a condition that a word's character comes next, and of one that nothing does
	kinds            []class
	words            []bool
	edges            bool
	lists            [][]int32
	ids              map[string]int32
	after            map[[2]int32]int32 // the list after a list and a kind
}

// inst is an instruction: one character of set, x or y (opAlternate), or a condition; then x.
type inst struct {
	op   op
	set  class
	has  []bool // by kind
	not  bool
	x, y int32 // y of opAhead: its body
}

type spot struct {
	pc     int32
	before before
	conds  int32 // the number of a list of conditions: 2·list, and one more for those that must not hold
}

// before is the kind of the last character; always atBegin or behindOther unless there are edges.
type before uint8

const (
	atBegin before = iota
	behindOther
	behindWord
)

func newSearch(m *meter, n *node) *search {
	s := &search{meter: m, code: []inst{{op: opFound}}, ids: map[string]int32{}, after: map[[2]int32]int32{}}
	s.number(nil) // 0: no conditions
	s.word, s.end = s.add(&node{op: opSet, set: wordsNarrow}, 0, true), s.add(&node{op: opEnd}, 0, true)
	all := &node{op: opRepeat, subs: []*node{{op: opSet, set: anyChar()}}, max: -1}
	s.start = s.add(&node{subs: []*node{all, n, all}}, 0, false)
	s.divide()
	return s
}

// add adds the instructions of a node, which continue at to, and returns the first. Within a look-ahead the only
// condition is $.
func (s *search) add(n *node, to int32, within bool) int32 {
	emit := func(i inst) int32 {
		if len(s.code) > maxNodes {
			s.spend(maxSteps, 0)
		}
		s.spend(1, 64)
		s.code = append(s.code, i)
		return int32(len(s.code) - 1)
	}
	if s.err != nil {
		return 0
	}
	switch end := to; n.op {
	case opConcat:
		for _, sub := range slices.Backward(n.subs) {
			to = s.add(sub, to, within)
		}
	case opAlternate:
		for i, sub := range n.subs {
			if x := s.add(sub, end, within); i == 0 {
				to = x
			} else {
				to = emit(inst{op: opAlternate, x: x, y: to})
			}
		}
	case opRepeat:
		if n.max < 0 {
			to = emit(inst{op: opAlternate, y: end})
			x := s.add(n.subs[0], to, within)
			s.code[to].x = x
		}
		for i := n.min; i < n.max && s.err == nil; i++ {
			to = emit(inst{op: opAlternate, x: s.add(n.subs[0], to, within), y: end})
		}
		for i := 0; i < n.min && s.err == nil; i++ {
			to = s.add(n.subs[0], to, within)
		}
	default:
		i := inst{op: n.op, set: n.set, not: n.not, x: to}
		if n.op == opAhead {
			i.y = s.add(n.subs[0], 0, true)
		}
		if within && n.op != opSet && n.op != opEnd {
			s.fail("a pattern of the schema has ^, \\b or a look ahead within a look ahead, which is not supported")
		}
		s.edges = s.edges || n.op == opEdge || n.op == opInside
		to = emit(i)
	}
	return to
}

func (s *search) divide() {
	sets, known := []class{wordsNarrow}, map[*span]int{} // by their first span
	numbers, cuts := make([]int, len(s.code)), []rune{0}
	for i, c := range s.code {
		var first *span
		if len(c.set) > 0 {
			first = &c.set[0]
		}
		n, ok := known[first]
		if !ok {
			n = len(sets)
			known[first] = n
			sets = append(sets, c.set.normal())
			s.spend(len(c.set), 16*len(c.set))
		}
		numbers[i] = n
	}
	for _, set := range sets {
		for _, r := range set {
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
	for i, lo := range cuts {
		hi := utf8.MaxRune
		if i+1 < len(cuts) {
			hi = cuts[i+1] - 1
		}
		if lo > hi {
			continue
		}
		key := make([]byte, len(sets))
		for j, set := range sets {
			if set.has(lo) {
				key[j] = 1
			}
		}
		g, ok := groups[string(key)]
		if !ok {
			g = len(s.kinds)
			groups[string(key)] = g
			s.kinds = append(s.kinds, nil)
			for j := range sets {
				has[j] = append(has[j], key[j] == 1)
			}
		}
		s.kinds[g] = append(s.kinds[g], span{lo, hi})
	}
	s.words = has[0]
	for i, n := range numbers {
		s.code[i].has = has[n]
	}
}

func (s *search) number(set []int32) int32 {
	slices.Sort(set)
	set = slices.Compact(set)
	var key []byte
	for _, n := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(n))
	}
	n, ok := s.ids[string(key)]
	if !ok {
		n = int32(len(s.lists))
		s.ids[string(key)] = n
		s.lists = append(s.lists, set)
		s.spend(1, 64+8*len(set))
	}
	return n
}

// list returns the number of the list of everything reachable without a character from instructions of a condition's
// body. If that includes opFound, the list has nothing else.
func (s *search) list(queue ...int32) int32 {
	seen := map[int32]bool{}
	var here []int32
	for len(queue) > 0 && !seen[0] {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[at] || !s.spend(3, 0) {
			continue
		}
		seen[at] = true
		i := &s.code[max(at, ^at)]
		x, y := i.x, i.y
		if at < 0 {
			x, y = ^x, ^y
		}
		switch {
		case i.op == opAlternate:
			queue = append(queue, x, y)
		case i.op == opEnd:
			queue = append(queue, ^i.x)
		case i.op == opFound || at >= 0:
			here = append(here, at)
		}
	}
	if seen[0] {
		here = []int32{0}
	}
	return s.number(here)
}

func (s *search) with(at spot, list int32, not bool) (spot, bool) {
	switch here := s.lists[list]; {
	case len(here) == 0:
		return at, not
	case here[0] == 0 && len(here) == 1:
		return at, !not
	}
	list *= 2
	if not {
		list++
	}
	at.conds = s.number(append(slices.Clone(s.lists[at.conds]), list))
	return at, true
}

// reach returns the spots before a character that are reachable, and whether the text may end there.
func (s *search) reach(queue ...spot) (here []spot, end bool) {
	seen := map[spot]bool{}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[at] || !s.spend(4+len(s.lists[at.conds]), 0) {
			continue
		}
		seen[at] = true
		i, next, ok := &s.code[at.pc], at, true
		next.pc = i.x
		switch i.op {
		case opSet:
			here, ok = append(here, at), false
		case opFound:
			ok = false
			end = end || !slices.ContainsFunc(s.lists[at.conds], func(c int32) bool {
				list := s.lists[c/2]
				return (slices.Contains(list, 0) || slices.Contains(list, ^0)) == (c&1 == 1)
			})
		case opAlternate:
			at.pc = i.y
			queue = append(queue, at)
		case opBegin:
			ok = at.before == atBegin
		case opEnd:
			next, ok = s.with(next, s.list(s.end), false)
		case opAhead:
			next, ok = s.with(next, s.list(i.y), i.not)
		default:
			next, ok = s.with(next, s.list(s.word), (at.before == behindWord) == (i.op == opEdge))
		}
		if ok {
			queue = append(queue, next)
		}
	}
	return here, end
}

// step returns false if the spot's conditions do not hold.
func (s *search) step(at spot, kind int) (to spot, ok bool) {
	i := &s.code[at.pc]
	if !i.has[kind] {
		return to, false
	}
	to = spot{pc: i.x, before: behindOther}
	if s.edges && s.words[kind] {
		to.before = behindWord
	}
	for _, c := range s.lists[at.conds] {
		key := [2]int32{c / 2, int32(kind)}
		list, known := s.after[key]
		if !known {
			var next []int32
			for _, pc := range s.lists[c/2] {
				if pc >= 0 && s.code[pc].has[kind] {
					next = append(next, s.code[pc].x)
				}
			}
			list = s.list(next...)
			s.after[key] = list
			s.spend(1, 64)
		}
		if to, ok = s.with(to, list, c&1 == 1); !ok {
			return to, false
		}
	}
	return to, s.spend(2+len(s.lists[at.conds]), 0)
}

func (s *search) match(text string) bool {
	if s.err != nil {
		return false
	}
	here, end := s.reach(spot{pc: s.start})
	for _, r := range text {
		kind := slices.IndexFunc(s.kinds, func(c class) bool { return c.has(r) })
		var next []spot
		for _, at := range here {
			if to, ok := s.step(at, kind); ok {
				next = append(next, to)
			}
		}
		here, end = s.reach(next...)
	}
	return end
}

func (s *search) graph() *graph {
	b := newBuilder(s.meter, nil, true)
	places := map[spot]int32{}
	var queue []spot
	place := func(at spot) int32 {
		n, ok := places[at]
		if !ok {
			n = b.add()
			places[at] = n
			queue = append(queue, at)
			s.spend(1, 64)
		}
		return n
	}
	start := place(spot{pc: s.start})
	var ends []int32
	for len(queue) > 0 && b.err == nil {
		from := queue[0]
		queue = queue[1:]
		here, end := s.reach(from)
		n := places[from]
		if end {
			ends = append(ends, n)
		}
		to := map[spot]class{}
		var order []spot
		for _, at := range here {
			for k, c := range s.kinds {
				next, ok := s.step(at, k)
				if !ok {
					continue
				}
				if _, there := to[next]; !there {
					order = append(order, next)
				}
				to[next] = append(to[next], c...)
				s.spend(1+len(c)/8, 0)
			}
		}
		for _, next := range order {
			b.emit(jsonClass(to[next]), n, place(next))
		}
	}
	return b.done(start, ends...)
}
