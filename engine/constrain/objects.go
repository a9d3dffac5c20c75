package constrain

import "slices"

func (c *schemaReader) object(m *members, parts []part, loose bool) {
	m.known, m.requires = map[string]bool{}, map[string]bool{}
	for _, p := range parts {
		c.count(p.o, "minProperties", atLeast(&m.minProps))
		c.count(p.o, "maxProperties", atMost(&m.maxProps))
		for _, name := range c.names(p.o, "required") {
			if !m.requires[name] {
				m.requires[name] = true
				m.required = append(m.required, name)
			}
		}
		if p.o.has("propertyNames") {
			m.names = append(m.names, p.o.get("propertyNames"))
		}
		own := c.source(p.o)
		if own.o != nil || own.patterns != nil {
			m.add(own)
		}
		if p.o.has("additionalProperties") {
			m.cover(layer{[]source{own}, p.o.get("additionalProperties")})
		}
		if own.o != nil && !c.spend(len(own.o.keys)) {
			return
		}
	}
	if !loose {
		c.unevaluated(m, parts)
	}
}

// unevaluated adds unevaluatedProperties. It applies to names that no other keyword in its schema knows; if one knows
// all names, to none.
func (c *schemaReader) unevaluated(m *members, parts []part) {
	for _, p := range parts {
		if !p.o.has("unevaluatedProperties") {
			continue
		}
		l := layer{rest: p.o.get("unevaluatedProperties")}
		all := false
		for _, q := range parts {
			if !c.spend(1 + len(c.scopes[q.scope])) {
				return
			}
			if !slices.Contains(c.scopes[q.scope], c.ids[p.o]) {
				continue
			}
			all = all || q.o.has("additionalProperties") || q.o != p.o && q.o.has("unevaluatedProperties")
			l.sources = append(l.sources, c.source(q.o))
		}
		if !all {
			m.cover(l)
		}
	}
}

func (c *schemaReader) source(o *object) source {
	read := func(keyword string) *object {
		m, ok := o.get(keyword).(*object)
		if !ok && o.has(keyword) {
			c.fail("%s of the schema is no object", keyword)
		}
		return m
	}
	return source{read("properties"), read("patternProperties")}
}

// of returns the schemas of a named member. A pattern with an uncertain match counts as both, so the value is valid
// under either reading.
func (c *schemaReader) of(m *members, name string) (schemas []any) {
	visit := func(s source, add bool) (knows bool) {
		if s.o != nil && s.o.has(name) {
			knows = true
			if add {
				schemas = append(schemas, s.o.get(name))
			}
		}
		if s.patterns == nil {
			return knows
		}
		for _, text := range s.patterns.keys {
			p := c.pattern(text)
			if p == nil {
				return true
			}
			surely, perhaps := c.match(p, name)
			if perhaps && add {
				schemas = append(schemas, s.patterns.get(text))
			}
			knows = knows || surely
		}
		return knows
	}
	for _, s := range m.sources {
		visit(s, true)
	}
	for _, l := range m.layers {
		knows := false
		for _, s := range l.sources {
			knows = visit(s, false) || knows
		}
		if !knows {
			schemas = append(schemas, l.rest)
		}
	}
	c.spend(4 + len(m.sources) + len(m.layers))
	if len(m.names) > 0 && !c.nameFits(m, name) {
		schemas = append(schemas, false)
	}
	return schemas
}

func (c *schemaReader) nameFits(m *members, name string) bool {
	parts, ok := c.collect(0, m.names...)
	for _, p := range parts {
		if p.o.has("anyOf") || p.o.has("oneOf") {
			c.fail("the keyword propertyNames of JSON schema with alternatives is not supported beside names of properties")
		}
	}
	if !ok || c.err != nil {
		return false
	}
	f := c.facts(parts, false)
	if f.hasEnum && !slices.ContainsFunc(f.enum, func(v any) bool { return v == name }) {
		return false
	}
	return f.said&typeString != 0 && c.fitsText(f, name)
}

func (c *schemaReader) names(o *object, keyword string) (names []string) {
	if !o.has(keyword) {
		return nil
	}
	list, ok := o.get(keyword).([]any)
	for _, v := range list {
		name, isText := v.(string)
		names, ok = append(names, name), ok && isText
	}
	if !ok {
		c.fail("%s of the schema is no array of strings", keyword)
	}
	return names
}

func (c *schemaReader) objectForm(m *members) expr {
	open := m.open || !m.declared || !c.strict && m.maxProps < 0
	for _, name := range m.required {
		m.name(name)
	}
	others := c.others(m, open && !m.closed)
	c.checkCounts(m, others)
	r := c.json
	if len(m.order) == 0 && others == nil {
		if m.minProps > 0 {
			return choice{}
		}
		return literal("{}")
	}
	if len(m.order) == 0 {
		return r.list("{", others, m.minProps, m.maxProps, "}")
	}
	x := inOrder{least: max(0, m.minProps-len(m.required)), more: others, comma: seq(literal(","), r.blank)}
	for _, name := range m.order {
		if !c.meter.spend(4*(x.least+1), 4*exprSize+len(name)) {
			return choice{}
		}
		member := seq(literal(`"`+jsonText(name)+`":`), r.blank, c.schema(c.of(m, name)...))
		if x.least > 0 {
			member = &rule{name: "property", body: member}
		}
		x.items = append(x.items, item{member, m.requires[name]})
	}
	return r.braces("{", x, len(m.required)+x.least == 0, "}")
}

// others returns nil if no other member is allowed.
func (c *schemaReader) others(m *members, open bool) expr {
	r := c.json
	if len(m.patterns) > 0 {
		return c.byPattern(m)
	}
	if !open {
		return nil
	}
	var rest []any
	for _, l := range m.layers {
		rest = append(rest, l.rest)
	}
	var value expr = r.value
	if len(rest) > 0 {
		value = c.schema(rest...)
	}
	var key expr = r.text
	switch {
	case len(m.names) > 0:
		text := &object{keys: []string{"type"}, values: map[string]any{"type": "string"}}
		key = c.schema(append([]any{text}, m.names...)...)
		if len(m.order) > 0 {
			return nil
		}
	case len(m.order) > 0:
		key = quoted(c.except(m.order))
	}
	return seq(key, literal(":"), r.blank, value)
}

// byPattern returns the form of a member whose name matches a pattern. If a name may match several, its value fits
// all of them.
func (c *schemaReader) byPattern(m *members) expr {
	if len(m.names) > 0 {
		c.fail("the keyword patternProperties of JSON schema is supported without propertyNames")
		return nil
	}
	forms := make([]expr, len(m.patterns))
	for i, text := range m.patterns {
		p := c.pattern(text)
		if p == nil {
			return nil
		}
		forms[i] = c.patternForm(p)
	}
	all := choice{}
	for i, text := range m.patterns {
		x := forms[i]
		if len(m.order) > 0 {
			x = c.both(x, c.except(m.order))
		}
		var schemas []any
		for j, other := range m.patterns {
			if i == j || c.overlap(x, c.search(other)) {
				schemas = append(schemas, m.byPattern(other)...)
			}
		}
		for _, l := range m.layers {
			if !slices.ContainsFunc(l.sources, func(s source) bool { return s.patterns != nil && s.patterns.has(text) }) {
				schemas = append(schemas, l.rest)
			}
		}
		all = append(all, seq(quoted(x), literal(":"), c.json.blank, c.schema(schemas...)))
	}
	return all
}

func (c *schemaReader) checkCounts(m *members, others expr) {
	if len(m.order) == 0 {
		if others != nil && m.minProps > 1 {
			c.fail("the keyword minProperties of JSON schema is supported up to 1, or with required properties: a name might come twice")
		}
		return
	}
	most := len(m.order)
	if m.minProps > most {
		c.fail("the keyword minProperties of JSON schema is supported up to the number of properties: want at most %d", most)
	}
	if m.maxProps >= 0 && (most > m.maxProps || others != nil) {
		c.fail("the keyword maxProperties of JSON schema is not supported beside properties")
	}
}

func (c *schemaReader) except(names []string) expr {
	c.meter.spend(len(names), 16*len(names))
	return except(slices.Sorted(slices.Values(names)))
}
