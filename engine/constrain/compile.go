package constrain

import "context"

// program is the automata of a form, without places from which no text can be completed.
type program struct {
	places []place
	out    arcs    // by place
	starts []int32 // by rule; rule 0 is the whole form
	loops  []loop
	// last marks places that only the end of their rule follows: a call that returns there is a tail call.
	last    []bool
	class   [256]uint8 // by byte; those of a class are on the same arcs
	samples []byte
	bytes   int
}

// Compile returns the grammar of a form for a vocabulary. It fails with a [*FormError] if the form exceeds the budget
// (nil means a new one), has no text that ends, is left-recursive, or is too ambiguous; and with ctx's cause when ctx
// ends.
//
// Texts with a byte that is no token by itself are excluded: they might not be completable.
func Compile(ctx context.Context, budget *Budget, f Form, v *Vocabulary) (Grammar, error) {
	m, err := compile(newBuilder(newMeter(ctx, budget), &v.single, false), f, v)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func compile(b *builder, f Form, v *Vocabulary) (*machine, error) {
	b.rule(&rule{name: "the whole form", body: f.x})
	b.all()
	if b.spend(8*len(b.places), arcSize*len(b.arcs)); b.err != nil {
		return nil, b.err
	}
	p := &program{places: b.places, starts: b.starts, loops: b.loops, last: make([]bool, len(b.places))}
	r := p.reversed(b.arcs)
	isFinal := func(at int32) bool { return p.places[at].final }
	good := r.from(isFinal, true)
	if !good[p.starts[0]] {
		return nil, formError("no text has this form: its parts contradict each other, or a part contains itself without end")
	}
	p.out = arcsBy(len(p.places), b.arcs, func(a *arc) int32 {
		if !good[a.to] || a.rule >= 0 && !good[p.starts[a.rule]] || a.rule == byNothing && a.from == a.to {
			return -1
		}
		return a.from
	})
	if n := p.leftRecursive(r.from(isFinal, false)); n >= 0 {
		return nil, formError("the rule %s begins with itself: write it so that something comes before it, for example as a repetition", clip(b.queue[n].name))
	}
	open := r.from(func(at int32) bool { return isFinal(at) || p.beginsPlain(at, true) }, false)
	for i := range p.places {
		p.last[i] = p.isLast(int32(i))
		if q := &p.places[i]; q.at == leave && open[i] {
			p.loops[q.loop].open = true
		}
	}
	p.classes()
	p.bytes = len(p.places)*placeSize + len(p.out.all)*arcSize/2
	for _, l := range p.loops {
		if l.lengths != nil {
			p.bytes += 8 * len(l.lengths.words)
		}
	}
	m := newMachine(p, v)
	if err := m.usable(m.start); err != nil {
		return nil, err
	}
	return m, nil
}

// reverse has arcs by where they lead, and calls by where their rule starts.
type reverse struct {
	into, calls arcs
	starts      []int32
}

func (p *program) reversed(list []arc) *reverse {
	return &reverse{
		arcsBy(len(p.places), list, func(a *arc) int32 { return a.to }),
		arcsBy(len(p.places), list, func(a *arc) int32 {
			if a.rule < 0 {
				return -1
			}
			return p.starts[a.rule]
		}),
		p.starts,
	}
}

// from returns the places from which a goal can be reached within the rule; if bytes is false, without any byte.
func (r *reverse) from(goal func(int32) bool, bytes bool) []bool {
	good := make([]bool, len(r.into.begin)-2)
	var queue []int32
	mark := func(at int32) {
		if !good[at] {
			good[at] = true
			queue = append(queue, at)
		}
	}
	for at := range good {
		if goal(int32(at)) {
			mark(int32(at))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, a := range r.into.of(at) {
			if a.rule == byNothing || a.rule == byByte && bytes || a.rule >= 0 && good[r.starts[a.rule]] {
				mark(a.from)
			}
		}
		for _, a := range r.calls.of(at) {
			if good[a.to] {
				mark(a.from)
			}
		}
	}
	return good
}

// leftRecursive returns a rule that can call itself before any byte, or -1.
func (p *program) leftRecursive(empty []bool) int32 {
	first := make([][]int32, len(p.starts))
	seen := make([]bool, len(p.places))
	for r, s := range p.starts {
		for queue := []int32{s}; len(queue) > 0; {
			at := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			if seen[at] {
				continue
			}
			seen[at] = true
			for _, a := range p.out.of(at) {
				if a.rule >= 0 {
					first[r] = append(first[r], a.rule)
				}
				if a.rule == byNothing || a.rule >= 0 && empty[p.starts[a.rule]] {
					queue = append(queue, a.to)
				}
			}
		}
	}
	const onPath, done = 1, 2
	state := make([]int, len(p.starts))
	for r := range p.starts {
		for path := []int32{int32(r)}; len(path) > 0; {
			top := path[len(path)-1]
			if n := len(first[top]); state[top] == done || n == 0 {
				state[top] = done
				path = path[:len(path)-1]
				continue
			}
			state[top] = onPath
			callee := first[top][0]
			first[top] = first[top][1:]
			switch state[callee] {
			case onPath:
				return callee
			case 0:
				path = append(path, callee)
			}
		}
	}
	return -1
}

func (p *program) isLast(at int32) bool {
	for range 8 { // a longer chain of skips is not recognized
		q, out := &p.places[at], p.out.of(at)
		if q.loop != 0 || len(out) == 0 || q.final || len(out) > 1 || out[0].rule != byNothing {
			return q.loop == 0 && len(out) == 0 && q.final
		}
		at = out[0].to
	}
	return false
}

func (p *program) classes() {
	var cuts [257]bool
	cuts[0] = true
	for _, a := range p.out.all {
		if a.rule == byByte {
			cuts[a.lo], cuts[int(a.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if cuts[b] {
			p.samples = append(p.samples, byte(b))
		}
		p.class[b] = uint8(len(p.samples) - 1)
	}
}
