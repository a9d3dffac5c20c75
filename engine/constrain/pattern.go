package constrain

// pattern is a pattern of a schema in two versions: what surely matches, and what may match.
type pattern struct {
	surely, perhaps *node
	narrow, wide    *search
	found           expr
}

// pattern returns nil, and fails, if the pattern can't be used.
func (c *schemaReader) pattern(text string) *pattern {
	if p, ok := c.patterns[text]; ok || !c.spend(1+len(text)) {
		return p
	}
	c.patterns[text] = nil
	surely, err := readECMA(text, false)
	if err == nil {
		p := &pattern{surely: surely}
		if p.perhaps, err = readECMA(text, true); err == nil {
			c.patterns[text] = p
			return p
		}
	}
	c.fail("%v", err)
	return nil
}

func (c *schemaReader) match(p *pattern, text string) (surely, perhaps bool) {
	if p.narrow == nil {
		p.narrow, p.wide = newSearch(c.meter, p.surely), newSearch(c.meter, p.perhaps)
	}
	surely, perhaps = p.narrow.match(text), p.wide.match(text)
	if c.err != nil {
		return false, true
	}
	return surely, perhaps
}

func (c *schemaReader) search(text string) expr {
	p := c.pattern(text)
	if p == nil {
		return choice{}
	}
	if p.found == nil {
		p.found = newSearch(c.meter, p.perhaps).graph()
	}
	return p.found
}

// patternForm returns the form of the texts that match a pattern, as jsonText spells them.
//
//  1. With conditions in its middle: all texts in which it is found.
//  2. Else the pattern, with any text at an end without ^ or $; without either, the pattern must match the whole
//     text.
func (c *schemaReader) patternForm(p *pattern) expr {
	n, begin, end := p.surely.strip()
	if n.conditional() { // 1
		return newSearch(c.meter, p.surely).graph()
	}
	x := n.expr(jsonClass) // 2
	rest := repeat{jsonClass(anyChar()), 0, -1}
	switch {
	case begin && !end:
		return seq(x, rest)
	case end && !begin:
		return seq(rest, x)
	}
	return x
}

func (n *node) strip() (rest *node, begin, end bool) {
	switch n.op {
	case opBegin:
		return &node{}, true, false
	case opEnd:
		return &node{}, false, true
	case opConcat:
	default:
		return n, false, false
	}
	subs := n.subs
	for len(subs) > 0 && subs[0].op == opBegin {
		begin, subs = true, subs[1:]
	}
	for len(subs) > 0 && subs[len(subs)-1].op == opEnd {
		end, subs = true, subs[:len(subs)-1]
	}
	return &node{subs: subs}, begin, end
}

func (n *node) conditional() bool {
	if n.op >= opBegin {
		return true
	}
	for _, s := range n.subs {
		if s.conditional() {
			return true
		}
	}
	return false
}

func (n *node) expr(set func(class) expr) expr {
	subs := make([]expr, len(n.subs))
	for i, s := range n.subs {
		subs[i] = s.expr(set)
	}
	switch n.op {
	case opSet:
		return set(n.set)
	case opRepeat:
		return repeat{subs[0], n.min, n.max}
	case opAlternate:
		return choice(subs)
	}
	return sequence(subs)
}
