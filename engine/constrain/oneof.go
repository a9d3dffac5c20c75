package constrain

func (c *schemaReader) exclusive(base []part, branches [][]part) {
	all := make([][]*facts, len(branches)) // by branch
	for i, b := range branches {
		options, _ := c.options(b, false)
		for _, o := range options {
			f := c.facts(merge(base, o), true)
			for j, others := range all[:i] {
				for _, g := range others {
					if !c.spend(8) {
						return
					}
					if !c.disjoint(f, g) {
						c.fail("alternatives %d and %d of oneOf in the schema may both fit one value: use anyOf, or tell them apart by type, by a const or by a required property", j+1, i+1)
						return
					}
				}
			}
			all[i] = append(all[i], f)
		}
	}
}

// disjoint reports whether no value of the form of f or of g is allowed by both.
//
//  1. They have no type in common.
//  2. Both are lists of values without a common one.
//  3. Both are numbers, and all of one are below all of the other.
//  4. Both are objects, one requires a property, and the other forbids it or wants another value.
func (c *schemaReader) disjoint(f, g *facts) bool {
	common := f.types&g.said | g.types&f.said
	switch {
	case common == 0: // 1
		return true
	case f.hasEnum && g.hasEnum: // 2
		return len(c.common(f.enum, g.enum)) == 0
	case f.hasEnum || g.hasEnum:
		return false
	case common&^(typeNumber|typeInteger) == 0: // 3
		return below(f.high, g.low) || below(g.high, f.low)
	case common != typeObject:
		return false
	}
	for _, pair := range [][2]*members{{&f.members, &g.members}, {&g.members, &f.members}} { // 4
		for _, name := range pair[0].required {
			here, okHere := c.collect(0, c.of(pair[0], name)...)
			there, okThere := c.collect(0, c.of(pair[1], name)...)
			if !okHere || !okThere {
				return c.err == nil
			}
			if x, y := c.facts(here, true), c.facts(there, true); x.hasEnum && y.hasEnum && len(c.common(x.enum, y.enum)) == 0 {
				return true
			}
		}
	}
	return false
}

func below(high, low *bound) bool {
	if high == nil || low == nil {
		return false
	}
	n := high.at.Cmp(low.at)
	return n < 0 || n == 0 && (high.strict || low.strict)
}
