package constrain

import (
	"encoding/binary"
	"slices"
)

// spot is the state of a search: the next instruction, the kind of the previous character, and conditions.
type spot struct {
	pc     int32
	before before
	conds  string // pairs of a look and its place, sorted
}

// before is the kind of the last character; it is always atBegin's or behindOther unless there are edges.
type before uint8

const (
	atBegin before = iota
	behindOther
	behindWord
)

// Looks that all patterns have.
const (
	wantWord  = -1 // a character of \w comes next
	wantOther = -2 // none does
	wantEnd   = -3 // nothing comes next
)

type cond struct{ look, at int32 }

func (s spot) list() (conds []cond) {
	for b := []byte(s.conds); len(b) > 0; b = b[8:] {
		conds = append(conds, cond{int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:]))})
	}
	return conds
}

func packed(conds []cond) string {
	slices.SortFunc(conds, func(a, b cond) int {
		if a.look != b.look {
			return int(a.look - b.look)
		}
		return int(a.at - b.at)
	})
	var b []byte
	for _, c := range slices.Compact(conds) {
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(c.look)), uint32(c.at))
	}
	return string(b)
}

// with returns a spot at another instruction, with one more condition.
func (s spot) with(pc int32, c cond) spot {
	return spot{pc, s.before, packed(append(s.list(), c))}
}

// reach returns the spots before a character that are reachable from spots, and whether the text may end there.
func (s *search) reach(from ...spot) (here []spot, end bool) {
	seen := map[spot]bool{}
	queue := slices.Clone(from)
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[at] || !s.spend(4+len(at.conds)/2, 0) {
			continue
		}
		seen[at] = true
		i := &s.main[at.pc]
		next := spot{i.x, at.before, at.conds}
		switch i.op {
		case instChar:
			here = append(here, at)
		case instSplit:
			queue = append(queue, next, spot{i.y, at.before, at.conds})
		case instBegin:
			if at.before == atBegin {
				queue = append(queue, next)
			}
		case instEnd:
			queue = append(queue, at.with(i.x, cond{look: wantEnd}))
		case instLook:
			l := &s.looks[i.y]
			p := s.set(l, []int32{0})
			if s.err != nil {
				return nil, false
			}
			if yes, no := l.settled(p); yes {
				queue = append(queue, next)
			} else if !no {
				queue = append(queue, at.with(i.x, cond{i.y, p}))
			}
		case instEdge, instInside:
			want := int32(wantWord)
			if (at.before == behindWord) == (i.op == instEdge) {
				want = wantOther
			}
			queue = append(queue, at.with(i.x, cond{look: want}))
		case instFound:
			end = end || s.ends(at)
		}
	}
	return here, end
}

// ends reports whether a spot's conditions hold if the text ends there.
func (s *search) ends(at spot) bool {
	for _, c := range at.list() {
		if c.look == wantWord || c.look >= 0 && !s.looks[c.look].final[c.at] {
			return false
		}
	}
	return true
}

// step returns the spot after a character; false if its conditions do not hold.
func (s *search) step(at spot, kind int) (spot, bool) {
	i := &s.main[at.pc]
	if !i.has[kind] || !s.spend(2+len(at.conds)/2, 0) {
		return spot{}, false
	}
	var conds []cond
	for _, c := range at.list() {
		if c.look < 0 {
			if c.look == wantEnd || (c.look == wantWord) != s.words[kind] {
				return spot{}, false
			}
			continue
		}
		l := &s.looks[c.look]
		p := s.after(l, c.at, kind)
		if s.err != nil {
			return spot{}, false
		}
		switch yes, no := l.settled(p); {
		case no:
			return spot{}, false
		case !yes:
			conds = append(conds, cond{c.look, p})
		}
	}
	to := spot{pc: i.x, before: behindOther, conds: packed(conds)}
	if s.edges && s.words[kind] {
		to.before = behindWord
	}
	return to, true
}

// match reports whether the pattern is found in a text.
func (s *search) match(text string) bool {
	if s.err != nil {
		return false
	}
	here, end := s.reach(spot{})
	for _, r := range text {
		kind := s.kind(r)
		to := map[spot]bool{}
		var next []spot
		for _, at := range here {
			if p, ok := s.step(at, kind); ok && !to[p] {
				to[p] = true
				next = append(next, p)
			}
		}
		here, end = s.reach(next...)
	}
	return end
}

func (s *search) kind(r rune) int {
	for k, c := range s.kinds {
		if c.contains(r) {
			return k
		}
	}
	return 0
}

// graph returns the automaton of the texts in which the pattern is found, in the spelling of jsonText.
func (s *search) graph() *graph {
	b := newBuilder(s.meter, nil, true)
	var ends []int32
	places := map[spot]int32{}
	var queue []spot
	place := func(at spot) int32 {
		n, ok := places[at]
		if !ok {
			n = b.add()
			places[at] = n
			queue = append(queue, at)
			s.spend(1, 64+len(at.conds))
		}
		return n
	}
	start := place(spot{})
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
