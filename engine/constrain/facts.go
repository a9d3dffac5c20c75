package constrain

import (
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"unicode/utf8"
)

// types is a set of JSON types.
type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeInteger
	typeNumber // those that are no integers
	typeString
	typeArray
	typeObject
	allTypes = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber | typeInteger,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// property is a name with the schemas that its value must fit.
type property struct {
	name    string
	schemas []any
}

// facts is all that is said of one value.
type facts struct {
	types  types
	hinted types // the types that keywords belong to, where no type is said

	enum    []any
	hasEnum bool

	low, high *bound
	multiple  *big.Rat

	minLength, maxLength int // maxLength -1: no limit
	patterns, formats    []string

	prefix             []property // of an array; the names are empty
	items              []any
	minItems, maxItems int

	properties         []property
	required           []string
	patternProperties  []property
	additional         []any // schemas of the other properties
	names              []any // schemas of their names
	open, closed       bool  // additionalProperties is said to be something, to be false
	minProps, maxProps int
}

// keywords are the keywords of a type that restrict values of that type.
var keywords = map[types][]string{
	typeNumber | typeInteger: {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	typeString:               {"minLength", "maxLength", "pattern", "format"},
	typeArray:                {"items", "prefixItems", "additionalItems", "minItems", "maxItems"},
	typeObject:               {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties"},
}

// facts collects what parts say.
func (c *schemaReader) facts(parts []part) *facts {
	f := &facts{types: allTypes, maxLength: -1, maxItems: -1, maxProps: -1}
	for _, p := range parts {
		c.types(f, p.o)
		c.enum(f, p.o)
		c.number(f, p.o)
		c.text(f, p.o)
	}
	for _, p := range parts {
		c.array(f, p.o)
		c.object(f, p.o)
	}
	if f.types == allTypes && f.hinted != 0 && !f.hasEnum {
		f.types = f.hinted
	}
	return f
}

func (c *schemaReader) types(f *facts, o *object) {
	for t, words := range keywords {
		if slices.ContainsFunc(words, o.has) {
			f.hinted |= t
		}
	}
	if !o.has("type") {
		return
	}
	list, ok := o.get("type").([]any)
	if !ok {
		list = []any{o.get("type")}
	}
	var t types
	for _, name := range list {
		text, _ := name.(string)
		if typeNames[text] == 0 {
			c.fail("type of the schema is %s: want null, boolean, integer, number, string, array or object", clip(writeJSON(name)))
		}
		t |= typeNames[text]
	}
	if o.get("nullable") == true { // OpenAPI 3.0
		t |= typeNull
	}
	f.types &= t
}

func (c *schemaReader) enum(f *facts, o *object) {
	limit := func(values []any) {
		if !f.hasEnum {
			f.enum, f.hasEnum = values, true
			return
		}
		f.enum = slices.DeleteFunc(slices.Clone(f.enum), func(v any) bool {
			return !slices.ContainsFunc(values, func(w any) bool { return equalJSON(v, w) })
		})
	}
	if o.has("const") {
		limit([]any{o.get("const")})
	}
	if o.has("enum") {
		values, ok := o.get("enum").([]any)
		if !ok {
			c.fail("enum of the schema is no array")
		}
		limit(values)
	}
}

// rat reads a keyword's number.
func (c *schemaReader) rat(o *object, keyword string) *big.Rat {
	n, ok := o.get(keyword).(json.Number)
	if ok {
		if r, ok := parseNumber(n.String()); ok {
			return r
		}
	}
	c.fail("%s of the schema is %s: want a number within what a float64 holds", keyword, clip(writeJSON(o.get(keyword))))
	return nil
}

func (c *schemaReader) number(f *facts, o *object) {
	low := func(b *bound) {
		if f.low == nil || b.at.Cmp(f.low.at) > 0 || b.at.Cmp(f.low.at) == 0 && b.strict {
			f.low = b
		}
	}
	high := func(b *bound) {
		if f.high == nil || b.at.Cmp(f.high.at) < 0 || b.at.Cmp(f.high.at) == 0 && b.strict {
			f.high = b
		}
	}
	limit := func(keyword, flag string, set func(*bound)) {
		if o.has(keyword) {
			if r := c.rat(o, keyword); r != nil {
				set(&bound{at: r, strict: o.get(flag) == true}) // draft 4 has a flag
			}
		}
		if _, isFlag := o.get(flag).(bool); o.has(flag) && !isFlag {
			if r := c.rat(o, flag); r != nil {
				set(&bound{at: r, strict: true})
			}
		}
	}
	limit("minimum", "exclusiveMinimum", low)
	limit("maximum", "exclusiveMaximum", high)
	if !o.has("multipleOf") {
		return
	}
	m := c.rat(o, "multipleOf")
	switch {
	case m == nil:
	case m.Sign() <= 0:
		c.fail("multipleOf of the schema is %s: want more than 0", m.RatString())
	case f.multiple != nil && f.multiple.Cmp(m) != 0:
		c.fail("two different multipleOf for one value are not supported")
	default:
		f.multiple = m
	}
}

// count reads a keyword's number of things.
func (c *schemaReader) count(o *object, keyword string, set func(int)) {
	if !o.has(keyword) {
		return
	}
	r := c.rat(o, keyword)
	if r == nil {
		return
	}
	if !r.IsInt() || r.Sign() < 0 {
		c.fail("%s of the schema is %s: want an integer, 0 or more", keyword, r.RatString())
		return
	}
	if !r.Num().IsInt64() || r.Num().Int64() > 1<<30 {
		set(1 << 30)
		return
	}
	set(int(r.Num().Int64()))
}

// atLeast and atMost set limits that only become narrower.
func atLeast(to *int) func(int) { return func(n int) { *to = max(*to, n) } }

func atMost(to *int) func(int) {
	return func(n int) {
		if *to < 0 || n < *to {
			*to = n
		}
	}
}

func (c *schemaReader) text(f *facts, o *object) {
	c.count(o, "minLength", atLeast(&f.minLength))
	c.count(o, "maxLength", atMost(&f.maxLength))
	for keyword, list := range map[string]*[]string{"pattern": &f.patterns, "format": &f.formats} {
		if !o.has(keyword) {
			continue
		}
		text, ok := o.get(keyword).(string)
		if !ok {
			c.fail("%s of the schema is no string", keyword)
		}
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
}

// fits says whether a value of an enum is allowed by the other facts that are about its type.
func (c *schemaReader) fits(f *facts, v any) bool {
	switch v := v.(type) {
	case nil:
		return f.types&typeNull != 0
	case bool:
		return f.types&typeBoolean != 0
	case json.Number:
		r, ok := parseNumber(v.String())
		if !ok {
			c.fail("enum of the schema has the number %s: want one within what a float64 holds", clip(v.String()))
			return false
		}
		t := typeNumber
		if r.IsInt() {
			t = typeInteger
		}
		return f.types&t != 0 && f.inRange(r)
	case string:
		return f.types&typeString != 0 && c.fitsText(f, v)
	case []any:
		if len(f.prefix) > 0 || f.items != nil {
			c.fail("enum or const of an array beside keywords for arrays is not supported")
		}
		return f.types&typeArray != 0 && len(v) >= f.minItems && (f.maxItems < 0 || len(v) <= f.maxItems)
	}
	if len(f.properties) > 0 || len(f.required) > 0 || f.open || f.closed || len(f.patternProperties) > 0 || f.minProps > 0 || f.maxProps >= 0 || f.names != nil {
		c.fail("enum or const of an object beside keywords for objects is not supported")
	}
	return f.types&typeObject != 0
}

func (f *facts) inRange(r *big.Rat) bool {
	if f.low != nil && (r.Cmp(f.low.at) < 0 || r.Cmp(f.low.at) == 0 && f.low.strict) {
		return false
	}
	if f.high != nil && (r.Cmp(f.high.at) > 0 || r.Cmp(f.high.at) == 0 && f.high.strict) {
		return false
	}
	return f.multiple == nil || new(big.Rat).Quo(r, f.multiple).IsInt()
}

func (c *schemaReader) fitsText(f *facts, s string) bool {
	if n := utf8.RuneCountInString(s); n < f.minLength || f.maxLength >= 0 && n > f.maxLength {
		return false
	}
	for _, p := range f.patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			c.fail("pattern %s of the schema can't be used: %v", clip(p), err)
			return false
		}
		if !re.MatchString(s) {
			return false
		}
	}
	for _, name := range f.formats {
		if p := formats[name]; p != "" && !regexp.MustCompile(`^(?:`+p+`)$`).MatchString(s) {
			return false
		}
	}
	return true
}
