package constrain

import "slices"

// Items are matched by position: an item of one part's prefix may be one of another's rest.
func (c *schemaReader) array(f *facts, o *object) {
	c.count(o, "minItems", atLeast(&f.minItems))
	c.count(o, "maxItems", atMost(&f.maxItems))
	prefix, rest := c.list(o, "prefixItems"), o.get("items")
	hasRest := o.has("items")
	if old, ok := rest.([]any); ok { // drafts before 2020-12
		prefix, rest, hasRest = old, o.get("additionalItems"), o.has("additionalItems")
	}
	for i := len(f.prefix); i < len(prefix); i++ {
		f.prefix = append(f.prefix, slices.Clone(f.items))
	}
	for i := range f.prefix {
		switch {
		case i < len(prefix):
			f.prefix[i] = append(f.prefix[i], prefix[i])
		case hasRest:
			f.prefix[i] = append(f.prefix[i], rest)
		}
		if !c.spend(1) {
			return
		}
	}
	if hasRest {
		f.items = append(f.items, rest)
	}
}

func (c *schemaReader) arrayForm(f *facts) expr {
	r := c.json
	var rest expr = r.value
	if len(f.items) > 0 {
		rest = c.schema(f.items...)
	}
	k, least, most := len(f.prefix), f.minItems, f.maxItems
	if k == 0 {
		return r.list("[", rest, least, most, "]")
	}
	if most >= 0 && most < least {
		return choice{}
	}
	if most == 0 {
		return literal("[]")
	}
	// Backwards: each item requires the ones before it.
	more := -1
	if most >= 0 {
		more = max(0, most-k)
	}
	var tail expr = repeat{seq(literal(","), r.blank, rest), max(0, least-k), more}
	if most >= 0 && most < k {
		k, tail = most, nil
	}
	for i := k - 1; i > 0; i-- {
		if !c.meter.spend(1, 4*exprSize) {
			return choice{}
		}
		tail = seq(literal(","), r.blank, c.schema(f.prefix[i]...), tail)
		if i >= least {
			tail = opt(tail)
		}
		if i%8 == 0 { // limits the nesting
			tail = &rule{name: "items", body: tail}
		}
	}
	return r.braces("[", seq(c.schema(f.prefix[0]...), tail), least == 0, "]")
}
