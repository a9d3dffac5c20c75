package constrain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Schema returns the form of the JSON values that a JSON schema (drafts 4 to 2020-12) allows, each in one spelling:
//
//   - Properties come in the order of the schema, after those of $ref, allOf and the chosen alternative.
//   - With maxProperties or patternProperties an object has only named properties.
//   - A pattern is ECMA-262. Without ^, $ and look-ahead it must match the whole string or name.
//   - oneOf needs visibly exclusive alternatives, within which a keyword of a type implies that type.
//   - Numbers have at most 18 digits and, if limited, no exponent. multipleOf is of decimal numbers.
//   - A format is enforced, sometimes more narrowly than its standard, or rejected.
//
// A schema that can't be enforced, or exceeds the budget, fails with a [*FormError]. A nil budget means a new one.
// Schema fails with ctx's cause when ctx ends.
func Schema(ctx context.Context, b *Budget, source []byte) (Form, error) {
	return readSchema(ctx, b, source, false)
}

// Strict is [Schema] for OpenAI's strict mode: an object with properties has no others unless they are asked for, and
// keywords of a type imply that type.
func Strict(ctx context.Context, b *Budget, source []byte) (Form, error) {
	return readSchema(ctx, b, source, true)
}

func readSchema(ctx context.Context, b *Budget, source []byte, strict bool) (Form, error) {
	root, err := readJSON(source)
	if err != nil {
		return Form{}, err
	}
	c := &schemaReader{
		root: root, strict: strict, json: newJSONRules(), meter: newMeter(ctx, b), rules: map[string]*rule{}, ids: map[*object]int{}, parts: map[part]int{},
		scopes: [][]int{nil}, scopeIDs: map[string]int{"": 0}, patterns: map[string]*pattern{},
	}
	c.index()
	x := c.schema(root)
	if c.err != nil {
		return Form{}, c.err
	}
	return Form{x}, nil
}

// part is a schema's own keywords, without $ref and allOf. With plain it is also without its alternatives, one of
// which was chosen; one reports whether it was an alternative of oneOf. scope is the set of enclosing schemas whose
// unevaluatedProperties need its properties.
type part struct {
	o     *object
	plain bool
	one   bool
	scope int
}

// schemaReader makes one form for each set of parts that apply to one value, so recursion ends.
type schemaReader struct {
	*meter
	root     any
	strict   bool
	json     *jsonRules
	refs     references
	rules    map[string]*rule // by set of parts
	ids      map[*object]int
	parts    map[part]int
	scopes   [][]int // sets of ids, each sorted; the first is empty
	scopeIDs map[string]int
	patterns map[string]*pattern
}

const partSize = int(unsafe.Sizeof(part{}))

const maxAlternatives = 1000

func (c *schemaReader) spend(steps int) bool { return c.meter.spend(steps, 0) }

func (c *schemaReader) schema(schemas ...any) expr {
	parts, ok := c.collect(0, schemas...)
	if !ok {
		return choice{}
	}
	return c.apply(parts)
}

// collection collects the parts of some schemas. Each is visited once, and again if it gets more enclosing scopes.
type collection struct {
	*schemaReader
	parts []part
	at    map[*object]int  // index in parts
	open  map[*object]bool // being visited
}

// collect returns false if no value fits all.
func (c *schemaReader) collect(scope int, schemas ...any) ([]part, bool) {
	n := collection{schemaReader: c, at: map[*object]int{}, open: map[*object]bool{}}
	for _, s := range schemas {
		if !n.add(s, scope) {
			return nil, false
		}
	}
	said := slices.DeleteFunc(n.parts, func(p part) bool { // only references
		return !slices.ContainsFunc(p.o.keys, func(k string) bool { _, ok := meaning[k]; return ok })
	})
	return said, c.err == nil
}

func (n *collection) add(s any, scope int) bool {
	if !n.spend(1) {
		return false
	}
	o, ok := s.(*object)
	if !ok {
		allowed, isBool := s.(bool)
		if !isBool {
			n.fail("a schema is %s: want an object, true or false", clip(writeJSON(s)))
		}
		return allowed
	}
	if n.open[o] {
		n.fail("a $ref of the schema leads back to itself, with nothing between")
		return false
	}
	n.check(o)
	if o.has("unevaluatedProperties") {
		scope = n.union(scope, n.scope(n.ids[o]))
	}
	at, seen := n.at[o]
	if seen {
		all := n.union(n.parts[at].scope, scope)
		if all == n.parts[at].scope {
			return true
		}
		scope, n.parts[at].scope = all, all
	}
	n.open[o] = true
	defer delete(n.open, o)
	if o.has("$ref") && !n.add(n.resolve(o, o.get("$ref")), scope) {
		return false
	}
	for _, sub := range n.list(o, "allOf") {
		if !n.add(sub, scope) {
			return false
		}
	}
	if !seen { // after the schemas it refers to, whose members come first
		n.at[o] = len(n.parts)
		n.parts = append(n.parts, part{o: o, scope: scope})
	}
	return n.err == nil
}

func (c *schemaReader) scope(ids ...int) int {
	var key strings.Builder
	for _, id := range ids {
		key.WriteString(strconv.Itoa(id))
		key.WriteByte(' ')
	}
	n, ok := c.scopeIDs[key.String()]
	if !ok {
		n = len(c.scopes)
		c.scopes = append(c.scopes, ids)
		c.scopeIDs[key.String()] = n
		c.meter.spend(len(ids), 3*exprSize+16*len(ids))
	}
	return n
}

func (c *schemaReader) union(a, b int) int {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	all := append(slices.Clone(c.scopes[a]), c.scopes[b]...)
	slices.Sort(all)
	return c.scope(slices.Compact(all)...)
}

// apply makes a rule, because the form may contain itself.
func (c *schemaReader) apply(parts []part) expr {
	if !c.spend(1 + len(parts)) {
		return choice{}
	}
	key := c.key(parts)
	if r := c.rules[key]; r != nil {
		return r
	}
	c.meter.spend(1, 4*exprSize+len(key))
	r := &rule{name: fmt.Sprintf("schema %d", len(c.rules)+1)}
	c.rules[key] = r
	r.body = c.body(parts)
	return r
}

func (c *schemaReader) key(parts []part) string {
	ids := make([]int, len(parts))
	for i, p := range parts {
		id, ok := c.parts[p]
		if !ok {
			id = len(c.parts)
			c.parts[p] = id
		}
		ids[i] = id
	}
	slices.Sort(ids)
	var b strings.Builder
	for _, id := range slices.Compact(ids) {
		b.WriteString(strconv.Itoa(id))
		b.WriteByte(' ')
	}
	return b.String()
}

func (c *schemaReader) body(parts []part) expr {
	options, open := c.options(parts, true)
	if !open {
		return c.value(c.facts(parts, false))
	}
	alternatives := choice{}
	for _, o := range options {
		alternatives = append(alternatives, c.apply(o))
	}
	return alternatives
}

// options returns what a value may fit: parts with one branch of each anyOf and oneOf before those of the schema that
// it is in. open reports whether there are any. With check, branches of oneOf are exclusive.
func (c *schemaReader) options(parts []part, check bool) (options [][]part, open bool) {
	options = [][]part{nil}
	for _, p := range parts {
		for _, keyword := range []string{"anyOf", "oneOf"} {
			if p.plain || !p.o.has(keyword) {
				continue
			}
			open = true
			branches := c.branches(p, keyword)
			if len(options)*len(branches) > maxAlternatives {
				c.fail("the schema is too large: anyOf and oneOf of one value give more than %d alternatives", maxAlternatives)
			}
			if keyword == "oneOf" && check {
				c.exclusive(parts, branches)
			}
			var product [][]part
			for _, o := range options {
				for _, b := range branches {
					if !c.meter.spend(1+len(o)*len(b)/8, partSize*(len(o)+len(b))) {
						return nil, true
					}
					product = append(product, merge(o, b))
				}
			}
			options = product
		}
		p.plain = true
		for i, o := range options {
			if !c.meter.spend(1+len(o)/8, partSize) {
				return nil, true
			}
			options[i] = merge(o, []part{p})
		}
	}
	return options, open
}

func merge(some, others []part) []part {
	all := slices.Clone(some)
	for _, p := range others {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

func (c *schemaReader) branches(p part, keyword string) (branches [][]part) {
	list := c.list(p.o, keyword)
	if len(list) == 0 {
		c.fail("%s of the schema is empty: want at least one alternative", keyword)
	}
	for _, s := range list {
		if b, ok := c.collect(p.scope, s); ok {
			for i := range b {
				b[i].one = p.one || keyword == "oneOf"
			}
			branches = append(branches, b)
		}
	}
	return branches
}

func (c *schemaReader) list(o *object, keyword string) []any {
	if !o.has(keyword) {
		return nil
	}
	list, ok := o.get(keyword).([]any)
	if !ok {
		c.fail("%s of the schema is no array", keyword)
	}
	return list
}

var refused = strings.Fields(`
	not if then else dependentRequired dependentSchemas dependencies contains minContains maxContains $dynamicRef
	$recursiveRef unevaluatedItems extends disallow divisibleBy propertyDependencies`)

func (c *schemaReader) check(o *object) {
	if _, ok := c.ids[o]; ok {
		return
	}
	c.ids[o] = len(c.ids)
	for _, k := range o.keys {
		if slices.Contains(refused, k) {
			at, _ := where(c.root, o)
			c.fail("the keyword %s of JSON schema is not supported: leave it out or say it with other keywords; it is in %s", k, clip("#"+at))
		}
	}
	if o.get("uniqueItems") == true {
		c.fail("the keyword uniqueItems of JSON schema is not supported: leave it out and check the answer")
	}
	if o.get("contentMediaType") == "application/json" { // of other types validators ask nothing
		c.fail("contentMediaType application/json of the schema is not supported: leave it out")
	}
}
