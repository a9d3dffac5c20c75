package constrain

import (
	"context"
	"slices"
)

// program is the automata of a form, trimmed: every place can be completed.
type program struct {
	places []place
	starts []int32 // of each rule; rule 0 is the whole form
	// last marks places with nothing but the end of their rule: a call that returns there needs no return place (tail
	// call).
	last []bool
	// class is the class of each byte: bytes of one class are on the same edges everywhere.
	class   [256]uint8
	samples []byte // one byte of each class
	bytes   int    // memory of the places
}

// Compile returns the grammar of a form for a vocabulary. It fails with a [*FormError] if the form exceeds the budget
// (nil means a new one), has no text that ends, is left-recursive, or is too ambiguous. It fails with ctx's cause when
// ctx ends.
//
// If the vocabulary has no token for some single byte, texts with that byte are excluded, because they might not be
// completable.
func Compile(ctx context.Context, budget *Budget, f Form, v *Vocabulary) (Grammar, error) {
	m, err := compile(&builder{rules: map[*rule]int32{}, only: &v.single, meter: newMeter(ctx, budget)}, f, v)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func compile(b *builder, f Form, v *Vocabulary) (*machine, error) {
	b.rule(&rule{name: "the whole form", body: f.x})
	b.all()
	if b.meter.spend(8*len(b.places), 0); !b.ok() { // the passes below visit all places a few times
		return nil, b.err
	}
	p := &program{places: b.places, starts: b.starts}
	if !p.trim() {
		return nil, formError("no text has this form: its parts contradict each other, or a part contains itself without end")
	}
	empty := p.ending(false)
	if name, ok := p.leftRecursion(empty, b.names); ok {
		return nil, formError("the rule %q begins with itself: write it so that something comes before it, for example as a repetition", name)
	}
	p.last = make([]bool, len(p.places))
	for i := range p.places {
		p.last[i] = p.isLast(int32(i))
		if q := &p.places[i]; q.at == leave {
			p.still(int32(i), empty, func(at int32) {
				next := &p.places[at]
				q.loop.open = q.loop.open || next.final || len(next.calls) > 0 || next.beginsPlain()
			})
		}
	}
	p.classes()
	p.bytes = p.size()
	m := newMachine(p, v)
	if err := m.usable(m.start); err != nil {
		return nil, err
	}
	return m, nil
}

// trim removes every edge to a place from which its rule can't end, and reports whether the form still has a text.
func (p *program) trim() bool {
	good := p.ending(true)
	for i := range p.places {
		q := &p.places[i]
		q.edges = slices.DeleteFunc(q.edges, func(e edge) bool { return !good[e.to] })
		q.skips = slices.DeleteFunc(q.skips, func(s int32) bool { return !good[s] || s == int32(i) })
		q.calls = slices.DeleteFunc(q.calls, func(c call) bool { return !good[c.to] || !good[p.starts[c.rule]] })
	}
	return good[p.starts[0]]
}

// ending returns the places from which a rule can end; if bytes is false, without any byte.
func (p *program) ending(bytes bool) []bool {
	n := len(p.places)
	good := make([]bool, n)
	before := make([][]int32, n)              // places with an edge or skip to here
	returns := make([][]int32, n)             // places with a call that returns here
	callers := make([][]int32, len(p.starts)) // places that call a rule
	ruleOf := make(map[int32]int32, len(p.starts))
	var queue []int32
	mark := func(at int32) {
		if !good[at] {
			good[at] = true
			queue = append(queue, at)
		}
	}
	for r, s := range p.starts {
		ruleOf[s] = int32(r)
	}
	for i := range p.places {
		at := int32(i)
		for _, e := range p.places[i].edges {
			if bytes {
				before[e.to] = append(before[e.to], at)
			}
		}
		for _, s := range p.places[i].skips {
			before[s] = append(before[s], at)
		}
		for _, c := range p.places[i].calls {
			returns[c.to] = append(returns[c.to], at)
			callers[c.rule] = append(callers[c.rule], at)
		}
		if p.places[i].final {
			mark(at)
		}
	}
	calls := func(at int32) { // a call ends if its rule can end and the place after it can
		for _, c := range p.places[at].calls {
			if good[c.to] && good[p.starts[c.rule]] {
				mark(at)
			}
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, b := range before[at] {
			mark(b)
		}
		for _, b := range returns[at] {
			calls(b)
		}
		if r, ok := ruleOf[at]; ok {
			for _, b := range callers[r] {
				calls(b)
			}
		}
	}
	return good
}

// leftRecursion finds a rule that can call itself before any byte.
func (p *program) leftRecursion(empty []bool, names []string) (name string, found bool) {
	first := make([][]int32, len(p.starts)) // rules that a rule may call before any byte
	for r, s := range p.starts {
		p.still(s, empty, func(at int32) {
			for _, c := range p.places[at].calls {
				first[r] = append(first[r], c.rule)
			}
		})
	}
	const done = 2
	state := make([]int, len(p.starts)) // 1: on the path
	type frame struct{ rule, next int }
	for r := range p.starts {
		if state[r] == done {
			continue
		}
		path := []frame{{rule: r}}
		state[r] = 1
		for len(path) > 0 {
			top := &path[len(path)-1]
			if top.next == len(first[top.rule]) {
				state[top.rule] = done
				path = path[:len(path)-1]
				continue
			}
			callee := int(first[top.rule][top.next])
			top.next++
			switch state[callee] {
			case 1:
				return names[callee], true
			case 0:
				state[callee] = 1
				path = append(path, frame{rule: callee})
			}
		}
	}
	return "", false
}

// still calls f with every place of one rule that is reachable without a byte.
func (p *program) still(start int32, empty []bool, f func(int32)) {
	seen := map[int32]bool{start: true}
	queue := []int32{start}
	push := func(at int32) {
		if !seen[at] {
			seen[at] = true
			queue = append(queue, at)
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		f(at)
		for _, s := range p.places[at].skips {
			push(s)
		}
		for _, c := range p.places[at].calls {
			if empty[p.starts[c.rule]] {
				push(c.to)
			}
		}
	}
}

// isLast reports whether nothing but the end of the rule follows a place.
func (p *program) isLast(at int32) bool {
	for hops := 0; hops < 8; hops++ { // a longer chain of skips is not recognized
		q := &p.places[at]
		switch {
		case q.loop != nil || len(q.edges) > 0 || len(q.calls) > 0:
			return false
		case len(q.skips) == 0:
			return q.final
		case len(q.skips) > 1 || q.final:
			return false
		}
		at = q.skips[0]
	}
	return false
}

// classes divides the bytes into classes that no edge distinguishes.
func (p *program) classes() {
	var cuts [257]bool
	cuts[0] = true
	for i := range p.places {
		for _, e := range p.places[i].edges {
			cuts[e.lo], cuts[int(e.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if cuts[b] {
			p.samples = append(p.samples, byte(b))
		}
		p.class[b] = uint8(len(p.samples) - 1)
	}
}

// size returns the memory of the places, in bytes.
func (p *program) size() int {
	n := len(p.places) * placeSize
	for i := range p.places {
		q := &p.places[i]
		n += cap(q.edges)*edgeSize/2 + 4*cap(q.skips) + edgeSize/2*cap(q.calls)
	}
	return n
}
