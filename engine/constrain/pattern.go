package constrain

// pattern is a pattern of a schema: as what surely matches, and as what may.
type pattern struct {
	surely, perhaps *node
	narrow, wide    *search // made when they are needed
	found           expr    // what search returns
}

// pattern reads a pattern once; nil, and a failure, if it can't be used.
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

// match says whether a text surely matches, and whether some reader may think so.
func (c *schemaReader) match(p *pattern, text string) (surely, perhaps bool) {
	if p.narrow == nil {
		p.narrow, p.wide = newSearch(c.meter, p.surely), newSearch(c.meter, p.perhaps)
	}
	surely, perhaps = p.narrow.match(text), p.wide.match(text)
	if c.meter.err != nil {
		return false, true
	}
	return surely, perhaps
}

// search is every text, in the spelling of jsonText, in which a pattern may be found.
func (c *schemaReader) search(text string) expr {
	p := c.pattern(text)
	if p == nil {
		return choice{}
	}
	if p.found == nil {
		p.found = c.graphOf(newSearch(c.meter, p.perhaps))
	}
	return p.found
}

// patternForm is texts that match a pattern, in the spelling of jsonText.
//
//  1. With conditions in its middle: all texts in which it is found.
//  2. Else what it says, and anything at the end that ^ or $ leaves open; all of it without either.
func (c *schemaReader) patternForm(p *pattern) expr {
	n, begin, end := p.surely.strip()
	if n.conditional() { // 1
		return c.graphOf(newSearch(c.meter, p.surely))
	}
	x := n.expr() // 2
	if x == nil {
		x = sequence{}
	}
	rest := repeat{jsonClass(anyChar()), 0, -1}
	switch {
	case begin && !end:
		return seq(x, rest)
	case end && !begin:
		return seq(rest, x)
	}
	return x
}

func (c *schemaReader) graphOf(s *search) expr {
	g, err := s.graph()
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return choice{}
	}
	return g
}

// strip takes ^ and $ off the ends of a pattern.
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

// conditional says whether there is a condition in a pattern: an end, an edge of a word, a look ahead.
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

// expr is the form of a pattern without conditions.
func (n *node) expr() expr {
	subs := make([]expr, len(n.subs))
	for i, s := range n.subs {
		subs[i] = s.expr()
	}
	switch n.op {
	case opSet:
		return jsonClass(n.set)
	case opRepeat:
		return repeat{subs[0], n.min, n.max}
	case opAlternate:
		return choice(subs)
	}
	return sequence(subs)
}
