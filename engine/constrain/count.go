package constrain

import "math/bits"

// counted is the texts of an automaton over JSON text that have min to max characters; a negative max means no limit.
type counted struct {
	g        *graph
	min, max int
}

// lengths are the numbers of characters that may follow each place of an automaton until it ends, as bits.
type lengths struct {
	words  []uint64 // those of a place i from 64·k on: words[k·stride+i]
	stride int32
	deep   int32 // the most that is known
	steady bool  // with deep characters, also with any higher number
}

// has reports whether some number of characters from lo to hi may follow a place.
func (l *lengths) has(place, lo, hi int32) bool {
	if l.steady {
		lo = min(lo, l.deep)
	}
	hi = min(hi, l.deep)
	for lo <= hi {
		if w := l.words[lo>>6*l.stride+place] >> (lo & 63); w != 0 {
			return lo+int32(bits.TrailingZeros64(w)) <= hi
		}
		lo = lo | 63 + 1
	}
	return false
}

func (b *builder) counted(x counted, from, to int32) {
	inside := x.g.inside()
	l, endless := b.lengthsOf(x, inside)
	most := int32(min(x.max, maxNodes))
	if x.max < 0 {
		most = maxNodes
	}
	if b.err != nil || !l.has(x.g.start, int32(x.min), most) {
		return
	}
	if !l.has(x.g.start, 0, int32(x.min)-1) && (x.max < 0 || !endless) {
		b.graph(x.g, from, to)
		return
	}
	n := b.addLoop(x.min, x.max)
	b.loops[n].lengths = l
	base := int32(len(b.places))
	b.loops[n].base = base
	for _, p := range x.g.places {
		if at := b.addIn(n, ordinary); b.err == nil {
			b.places[at].free = p.free && x.max < 0
		}
	}
	last := b.addIn(n, leave)
	ended := make([]int32, len(x.g.places)) // where a character before a place ends; 0: unknown
	if b.err != nil {
		return
	}
	b.skip(from, base+x.g.start)
	for _, a := range x.g.out.all {
		switch {
		case a.rule != byByte:
			b.skip(base+a.from, base+a.to)
		case inside[a.to] > 0:
			b.edge(base+a.from, base+a.to, a.byteRange)
		default:
			if ended[a.to] == 0 {
				ended[a.to] = b.addIn(n, again)
				b.skip(ended[a.to], base+a.to)
			}
			b.edge(base+a.from, ended[a.to], a.byteRange)
		}
	}
	for i, p := range x.g.places {
		if p.final {
			b.skip(base+int32(i), last)
		}
	}
	b.skip(last, to)
}

// lengthsOf returns the lengths of the places of an automaton, and whether it has longer texts. It goes back from the
// ends, character by character, until the limit, the beginning, or a fixed point.
func (b *builder) lengthsOf(x counted, inside []int8) (l *lengths, endless bool) {
	size := len(x.g.places)
	l = &lengths{stride: int32(size)}
	into := arcsBy(size, x.g.out.all, func(a *arc) int32 { return a.to })
	var here, before []int32
	for i, p := range x.g.places {
		if p.final {
			here = append(here, int32(i))
		}
	}
	most := x.max
	if most < 0 {
		most = x.min
	}
	for r, last := 0, 0; b.err == nil; r++ {
		if r&63 == 0 {
			b.spend(size/8, 8*size)
			l.words = append(l.words, make([]uint64, size)...)
		}
		l.deep = int32(r)
		l.steady = r == most && x.max < 0
		count, change := 0, false
		for before = nil; len(here) > 0; {
			at := here[len(here)-1]
			here = here[:len(here)-1]
			word := &l.words[r>>6*size+int(at)]
			if *word>>(r&63)&1 != 0 {
				continue
			}
			*word |= 1 << (r & 63)
			count++
			change = change || r == 0 || !l.has(at, int32(r)-1, int32(r)-1)
			list := into.of(at)
			b.spend(1+len(list), 0)
			for _, a := range list {
				if a.rule == byByte && inside[at] == 0 && !l.steady {
					before = append(before, a.from)
				} else {
					here = append(here, a.from)
				}
			}
		}
		same := !change && count == last
		l.steady = l.steady || same
		if len(before) == 0 || same || r == most {
			break
		}
		here, last = before, count
	}
	return l, len(before) > 0
}

// inside returns for each place of an automaton over JSON text how many bytes of a character are still to come.
func (g *graph) inside() []int8 {
	const unknown, escaped = -1, 9
	all := make([]int8, len(g.places))
	for i := range all {
		all[i] = unknown
	}
	all[g.start] = 0
	for queue := []int32{g.start}; len(queue) > 0; {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, a := range g.out.of(at) {
			n := all[at]
			switch {
			case a.rule != byByte:
			case n == escaped && a.lo == 'u':
				n = 4
			case n == escaped:
				n = 0
			case n > 0:
				n--
			case a.lo == '\\':
				n = escaped
			default:
				n = int8(max(bits.LeadingZeros8(^a.lo)-1, 0))
			}
			if all[a.to] == unknown {
				all[a.to] = n
				queue = append(queue, a.to)
			}
		}
	}
	return all
}
