package constrain

import (
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Schema is the JSON values that a JSON schema (draft 2020-12, and what older
// drafts say in the same words) allows, each in one way:
//
//   - Properties come in the order of the schema. One that is not required may be left out.
//   - An object with properties has no others unless additionalProperties asks for
//     them; one without properties has any.
//   - Without a type, keywords of a type (minLength, items, …) mean that type.
//   - A pattern without ^ or $ must match the whole string, which is what most
//     patterns mean; one with either is free at its other end.
//   - oneOf needs alternatives that exclude each other as far as can be seen: by
//     type, by enum or const, or by a required property.
//   - Numbers have at most 18 digits and, where they have limits, no exponent.
//   - format is kept for date-time, date, time, duration, email, hostname, ipv4,
//     ipv6, uuid and uri; other formats are comments, as the specification has it.
//
// It fails with a [*FormError] that names the keyword which can't be kept.
func Schema(source []byte) (Form, error) {
	root, err := readJSON(source)
	if err != nil {
		return Form{}, err
	}
	c := &schemaReader{root: root, json: newJSONRules(), rules: map[string]*rule{}, ids: map[*object]int{}, parts: map[part]int{}}
	x := c.schema(root)
	if c.err != nil {
		return Form{}, c.err
	}
	return Form{x}, nil
}

// part is a schema's own keywords: without what $ref and allOf refer to, and with
// plain also without its alternatives, one of which was chosen.
type part struct {
	o     *object
	plain bool
}

// schemaReader makes forms of schemas. A form is made once for each set of parts
// that apply to one value, so recursion through any mixture of $ref and allOf ends.
type schemaReader struct {
	root  any
	json  *jsonRules
	rules map[string]*rule // by set of parts
	ids   map[*object]int
	parts map[part]int
	err   error
}

// Limits of a schema.
const (
	maxSchemas      = 20000 // different sets of parts
	maxAlternatives = 1000  // that anyOf and oneOf of one value give together
)

func (c *schemaReader) fail(format string, args ...any) {
	if c.err == nil {
		c.err = formError(format, args...)
	}
}

// schema is the form of the values that fit all of some schemas.
func (c *schemaReader) schema(schemas ...any) expr {
	var parts []part
	for _, s := range schemas {
		if !c.collect(s, &parts, nil) {
			return choice{} // one of them is false
		}
	}
	return c.apply(parts)
}

// collect adds the parts of a schema; false if nothing fits it. path holds the references that led here.
func (c *schemaReader) collect(s any, parts *[]part, path []*object) bool {
	if c.err != nil {
		return false
	}
	switch s := s.(type) {
	case bool:
		return s
	case *object:
		if slices.Contains(path, s) {
			c.fail("a $ref of the schema leads back to itself, with nothing between")
			return false
		}
		path = append(path[:len(path):len(path)], s)
		c.check(s)
		p := part{o: s}
		if !slices.Contains(*parts, p) {
			*parts = append(*parts, p)
		}
		if s.has("$ref") && !c.collect(c.resolve(s.get("$ref")), parts, path) {
			return false
		}
		for _, sub := range c.list(s, "allOf") {
			if !c.collect(sub, parts, path) {
				return false
			}
		}
		return c.err == nil
	}
	c.fail("a schema is %s: want an object, true or false", writeJSON(s))
	return false
}

// apply is the form of the values that all parts allow: a rule, for it may contain itself.
func (c *schemaReader) apply(parts []part) expr {
	if c.err != nil {
		return choice{}
	}
	key := c.key(parts)
	if r := c.rules[key]; r != nil {
		return r
	}
	if len(c.rules) >= maxSchemas {
		c.fail("the schema is too large: its parts combine to more than %d", maxSchemas)
		return choice{}
	}
	r := &rule{name: fmt.Sprintf("schema %d", len(c.rules)+1)}
	c.rules[key] = r
	r.body = c.body(parts)
	return r
}

// key identifies a set of parts.
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
	sort.Ints(ids)
	var b strings.Builder
	for _, id := range slices.Compact(ids) {
		b.WriteString(strconv.Itoa(id))
		b.WriteByte(' ')
	}
	return b.String()
}

// body takes alternatives apart, and makes the form of parts that have none.
func (c *schemaReader) body(parts []part) expr {
	options := [][]part{nil}
	open := false
	plain := make([]part, len(parts))
	for i, p := range parts {
		plain[i] = part{o: p.o, plain: true}
	}
	for _, p := range parts {
		if p.plain {
			continue
		}
		for _, keyword := range []string{"anyOf", "oneOf"} {
			if !p.o.has(keyword) {
				continue
			}
			open = true
			branches := c.branches(p.o, keyword)
			if keyword == "oneOf" {
				c.exclusive(plain, branches)
			}
			if len(options)*len(branches) > maxAlternatives {
				c.fail("the schema is too large: anyOf and oneOf of one value give more than %d alternatives", maxAlternatives)
				return choice{}
			}
			var product [][]part
			for _, o := range options {
				for _, b := range branches {
					product = append(product, append(o[:len(o):len(o)], b...))
				}
			}
			options = product
		}
	}
	if c.err != nil {
		return choice{}
	}
	if !open {
		return c.value(c.facts(parts))
	}
	alternatives := choice{}
	for _, o := range options {
		alternatives = append(alternatives, c.apply(append(plain[:len(plain):len(plain)], o...)))
	}
	return alternatives
}

// branches are the alternatives that a value may fit at all, as parts.
func (c *schemaReader) branches(o *object, keyword string) (branches [][]part) {
	list := c.list(o, keyword)
	if len(list) == 0 {
		c.fail("%s of the schema is empty: want at least one alternative", keyword)
	}
	for _, s := range list {
		var b []part
		if c.collect(s, &b, nil) {
			branches = append(branches, b)
		}
	}
	return branches
}

// list is a keyword's array of schemas.
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

// resolve follows a reference within the document.
func (c *schemaReader) resolve(ref any) any {
	text, ok := ref.(string)
	if !ok {
		c.fail("$ref of the schema is no string")
		return false
	}
	pointer, ok := strings.CutPrefix(text, "#")
	if ok {
		if decoded, err := url.PathUnescape(pointer); err == nil {
			pointer = decoded
		}
	}
	if !ok || pointer != "" && !strings.HasPrefix(pointer, "/") {
		c.fail("$ref of the schema is %s: want a JSON pointer into the same schema, like #/$defs/name", clip(text))
		return false
	}
	at := c.root
	if pointer == "" {
		return at
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := at.(type) {
		case *object:
			if at, ok = v.values[step]; ok {
				continue
			}
		case []any:
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(v) {
				at = v[n]
				continue
			}
		}
		c.fail("$ref of the schema is %s, and there is nothing", clip(text))
		return false
	}
	return at
}

// refused are the keywords that restrict values in a way that no grammar of this package does.
var refused = []string{
	"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains",
	"maxContains", "$dynamicRef", "$recursiveRef", "unevaluatedItems", "extends", "disallow", "divisibleBy",
}

// check refuses a schema with keywords that can't be kept.
func (c *schemaReader) check(o *object) {
	if _, ok := c.ids[o]; ok {
		return
	}
	c.ids[o] = len(c.ids)
	for _, k := range refused {
		if o.has(k) {
			c.fail("the keyword %s of JSON schema is not supported: leave it out or say it with other keywords", k)
		}
	}
	if o.get("uniqueItems") == true {
		c.fail("the keyword uniqueItems of JSON schema is not supported: leave it out and check the answer")
	}
	if v := o.get("unevaluatedProperties"); v != nil && v != false && v != true {
		c.fail("the keyword unevaluatedProperties of JSON schema is supported with false and true only")
	}
}
