package constrain

import (
	"regexp"
	"slices"
)

// array collects what a part says of an array's items.
//
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
		f.prefix = append(f.prefix, property{schemas: slices.Clone(f.items)})
	}
	for i := range f.prefix {
		switch {
		case i < len(prefix):
			f.prefix[i].schemas = append(f.prefix[i].schemas, prefix[i])
		case hasRest:
			f.prefix[i].schemas = append(f.prefix[i].schemas, rest)
		}
	}
	if hasRest {
		f.items = append(f.items, rest)
	}
}

// arrayForm is the form of an array.
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
	// From the end to the beginning: each item is there if the ones before are.
	more := -1
	if most >= 0 {
		more = max(0, most-k)
	}
	var tail expr = repeat{seq(literal(","), r.blank, rest), max(0, least-k), more}
	if most >= 0 && most < k {
		k, tail = most, nil
	}
	for i := k - 1; i > 0; i-- {
		tail = seq(literal(","), r.blank, c.schema(f.prefix[i].schemas...), tail)
		if i >= least {
			tail = opt(tail)
		}
	}
	return r.braces("[", seq(c.schema(f.prefix[0].schemas...), tail), least == 0, "]")
}

// object collects what a part says of an object's members.
//
// A property of one part is another part's property, or matches its patterns, or is one of its others.
func (c *schemaReader) object(f *facts, o *object) {
	c.count(o, "minProperties", atLeast(&f.minProps))
	c.count(o, "maxProperties", atMost(&f.maxProps))
	for _, name := range c.names(o, "required") {
		if !slices.Contains(f.required, name) {
			f.required = append(f.required, name)
		}
	}
	own, patterns := c.members(o, "properties"), c.members(o, "patternProperties")
	others, hasOthers := o.get("additionalProperties"), o.has("additionalProperties")
	before := len(f.properties)
	for _, p := range own {
		if !slices.ContainsFunc(f.properties, func(q property) bool { return q.name == p.name }) {
			f.properties = append(f.properties, property{p.name, c.otherwise(f, p.name)})
		}
	}
	for i := range f.properties {
		q := &f.properties[i]
		known := false
		for _, p := range own {
			if p.name == q.name {
				q.schemas, known = append(q.schemas, p.schemas...), true
			}
		}
		for _, p := range patterns {
			if c.match(p.name, q.name) {
				q.schemas, known = append(q.schemas, p.schemas...), true
			}
		}
		if !known && hasOthers && i < before {
			q.schemas = append(q.schemas, others)
		}
	}
	// The names that match a pattern of one part are others of the parts that do not have it.
	if hasOthers {
		for i := range f.patternProperties {
			q := &f.patternProperties[i]
			q.schemas = append(q.schemas[:len(q.schemas):len(q.schemas)], others)
		}
	}
	for _, p := range patterns {
		p.schemas = append(p.schemas, f.additional...)
		f.patternProperties = append(f.patternProperties, p)
	}
	if hasOthers {
		f.additional = append(f.additional, others)
		f.open = f.open || others != false
		f.closed = f.closed || others == false
	}
	if o.get("unevaluatedProperties") == false {
		f.closed = true
	}
	if o.has("propertyNames") {
		f.names = append(f.names, o.get("propertyNames"))
	}
}

// otherwise is what the parts so far say of a property that none of them has.
func (c *schemaReader) otherwise(f *facts, name string) (schemas []any) {
	for _, p := range f.patternProperties {
		if c.match(p.name, name) {
			return append(schemas, p.schemas...)
		}
	}
	return slices.Clone(f.additional)
}

// match says whether a name matches a pattern of a schema.
func (c *schemaReader) match(pattern, name string) bool {
	re, err := regexp.Compile(pattern)
	if err != nil {
		c.fail("the pattern %s of the schema can't be used: %v", clip(pattern), err)
		return false
	}
	return re.MatchString(name)
}

// members reads an object of schemas.
func (c *schemaReader) members(o *object, keyword string) (list []property) {
	if !o.has(keyword) {
		return nil
	}
	m, ok := o.get(keyword).(*object)
	if !ok {
		c.fail("%s of the schema is no object", keyword)
		return nil
	}
	for _, k := range m.keys {
		list = append(list, property{k, []any{m.values[k]}})
	}
	return list
}

// names reads an array of strings. (Draft 3's required was a flag.)
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

// objectForm is the form of an object:
//
//  1. the properties in their order, those that are not required as options;
//  2. then others, if there may be any: by pattern, or any but the ones named.
func (c *schemaReader) objectForm(f *facts) expr {
	for _, name := range f.required {
		if !slices.ContainsFunc(f.properties, func(p property) bool { return p.name == name }) {
			schemas := c.otherwise(f, name)
			if f.closed && len(schemas) == 0 {
				schemas = []any{false}
			}
			f.properties = append(f.properties, property{name, schemas})
			f.open = f.open || !f.closed && len(f.properties) == len(f.required)
		}
	}
	others := c.others(f)
	c.checkCounts(f, others)
	r := c.json
	if len(f.properties) == 0 && others == nil {
		return literal("{}")
	}
	if len(f.properties) == 0 {
		return r.list("{", others, f.minProps, f.maxProps, "}")
	}
	// From the end to the beginning: more is what may follow a property, first what may come when there was none.
	var more expr
	first := choice{}
	if others != nil {
		more = repeat{seq(literal(","), r.blank, others), 0, -1}
		first = append(first, seq(others, more))
	}
	for i := len(f.properties) - 1; i >= 0; i-- {
		p := f.properties[i]
		member := seq(literal(`"`+jsonText(p.name)+`":`), r.blank, c.schema(p.schemas...))
		if slices.Contains(f.required, p.name) {
			first = choice{seq(member, more)}
			more = seq(literal(","), r.blank, member, more)
		} else {
			first = append(first, seq(member, more))
			more = seq(opt(seq(literal(","), r.blank, member)), more)
		}
		if i%8 == 0 { // so that no beginning copies all of the rest
			more = &rule{name: "properties", body: more}
		}
	}
	return r.braces("{", first, len(f.required) == 0, "}")
}

// others is the form of a member that is not among the properties; nil if there can't be one.
func (c *schemaReader) others(f *facts) expr {
	r := c.json
	var names []string
	for _, p := range f.properties {
		names = append(names, p.name)
	}
	if len(f.patternProperties) > 0 {
		return c.byPattern(f, names)
	}
	if f.closed || !f.open && len(f.properties) > 0 {
		return nil
	}
	var value expr = r.value
	if len(f.additional) > 0 {
		value = c.schema(f.additional...)
	}
	var key expr = r.text
	switch {
	case len(f.names) > 0 && len(names) > 0:
		c.fail("the keyword propertyNames of JSON schema beside properties is not supported")
	case len(f.names) > 0:
		var parts []part
		for _, s := range f.names {
			if !c.collect(s, &parts, nil) {
				return nil
			}
		}
		limits := c.facts(parts)
		limits.types &= typeString
		key = c.value(limits)
	case len(names) > 0:
		key = quoted(except(names))
	}
	return seq(key, literal(":"), r.blank, value)
}

// byPattern is a member whose name matches one of the patterns of a schema.
func (c *schemaReader) byPattern(f *facts, names []string) expr {
	if len(f.patternProperties) > 1 || len(f.names) > 0 {
		c.fail("the keyword patternProperties of JSON schema is supported with one pattern, and without propertyNames")
		return nil
	}
	p := f.patternProperties[0]
	x := c.pattern(p.name)
	if len(names) > 0 {
		x = c.both(x, except(names))
	}
	return seq(quoted(x), literal(":"), c.json.blank, c.schema(p.schemas...))
}

// checkCounts refuses limits of the number of members that the form can't count.
func (c *schemaReader) checkCounts(f *facts, others expr) {
	if len(f.properties) == 0 {
		if others != nil && f.minProps > 1 {
			c.fail("the keyword minProperties of JSON schema is supported up to 1, or with required properties: a name might come twice")
		}
		return
	}
	all := f.minProps <= len(f.required)
	if most := len(f.properties); f.maxProps >= 0 && (most > f.maxProps || others != nil) {
		all = false
	}
	if !all {
		c.fail("the keywords minProperties and maxProperties of JSON schema are not supported beside properties")
	}
}

// except is every text, in the spelling of jsonText, but some.
func except(names []string) expr {
	type node struct {
		children map[rune]int
		end      bool
	}
	nodes := []node{{children: map[rune]int{}}}
	for _, name := range names {
		at := 0
		for _, r := range name {
			next, ok := nodes[at].children[r]
			if !ok {
				next = len(nodes)
				nodes = append(nodes, node{children: map[rune]int{}})
				nodes[at].children[r] = next
			}
			at = next
		}
		nodes[at].end = true
	}
	rest := repeat{jsonClass(anyChar()), 0, -1}
	var build func(at int) expr
	build = func(at int) expr {
		c := choice{}
		var here class
		for r := range nodes[at].children {
			here = append(here, span{r, r})
		}
		for _, s := range here.normal() {
			for r := s.lo; r <= s.hi; r++ {
				c = append(c, seq(jsonClass(class{{r, r}}), build(nodes[at].children[r])))
			}
		}
		c = append(c, seq(jsonClass(here.not()), rest))
		if !nodes[at].end {
			c = append(c, nil)
		}
		return c
	}
	return build(0)
}
