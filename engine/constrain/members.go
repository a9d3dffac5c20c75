package constrain

import "slices"

type members struct {
	sources            []source
	layers             []layer
	order              []string
	known              map[string]bool
	required           []string
	requires           map[string]bool
	patterns           []string
	names              []any // propertyNames
	declared           bool
	open, closed       bool // to names that are not listed
	minProps, maxProps int  // maxProps -1: no limit
}

type source struct {
	o, patterns *object // schemas by name, by pattern; may be nil
}

// layer is additionalProperties or unevaluatedProperties: a schema for the names that sources do not know.
type layer struct {
	sources []source
	rest    any
}

func (m *members) free() bool {
	return len(m.sources) == 0 && len(m.layers) == 0 && len(m.required) == 0 && m.names == nil && m.minProps == 0 && m.maxProps < 0
}

func (m *members) add(s source) {
	m.sources = append(m.sources, s)
	if s.o != nil {
		m.declared = true
		for _, name := range s.o.keys {
			m.name(name)
		}
	}
	if s.patterns != nil {
		for _, p := range s.patterns.keys {
			if !slices.Contains(m.patterns, p) {
				m.patterns = append(m.patterns, p)
			}
		}
	}
}

func (m *members) name(name string) {
	if !m.known[name] {
		m.known[name] = true
		m.order = append(m.order, name)
	}
}

func (m *members) cover(l layer) {
	m.layers = append(m.layers, l)
	m.open = m.open || l.rest != false
	m.closed = m.closed || l.rest == false
}

func (m *members) byPattern(text string) (schemas []any) {
	for _, s := range m.sources {
		if s.patterns != nil && s.patterns.has(text) {
			schemas = append(schemas, s.patterns.get(text))
		}
	}
	return schemas
}

// inOrder is items of a list in their order, with commas between: the required ones, and at least so many others. Any
// number of more may follow, unless it is nil.
type inOrder struct {
	items []item
	least int
	more  expr
	comma expr
}

type item struct {
	x        expr // a rule, if least is not 0
	required bool
}

// inOrder has a row of places for each number of optional items so far, up to least. The first row is for no item
// yet, so no comma comes before the next.
func (b *builder) inOrder(x inOrder, from, to int32) {
	last := x.least + 1
	row := make([]int32, last+1)
	for k := range row {
		row[k] = b.add()
	}
	b.skip(from, row[0])
	comma := func(k int, to int32) {
		if k > 0 {
			b.emit(x.comma, row[k], to)
		} else {
			b.skip(row[k], to)
		}
	}
	for _, i := range x.items {
		next, begin := make([]int32, len(row)), make([]int32, len(row))
		for k := range next {
			next[k], begin[k] = b.add(), b.add()
		}
		for k := range row {
			then := max(k, 1)
			if !i.required {
				b.skip(row[k], next[k])
				then = min(then+1, last)
			}
			comma(k, begin[then])
		}
		for k := 1; k < len(row); k++ {
			b.emit(i.x, begin[k], next[k])
		}
		if row = next; b.err != nil {
			return
		}
	}
	if x.more != nil {
		begin, end := b.add(), b.add()
		if x.least == 0 {
			comma(0, begin)
		}
		comma(last, begin)
		b.emit(x.more, begin, end)
		b.emit(x.comma, end, begin)
		b.skip(end, to)
	}
	b.skip(row[last], to)
}
