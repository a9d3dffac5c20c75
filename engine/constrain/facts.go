package constrain

import (
	"encoding/json"
	"math/big"
	"slices"
)

type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeInteger
	typeNumber // not integers
	typeString
	typeArray
	typeObject
	allTypes = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber | typeInteger,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// facts collects the keywords of a value's schemas.
type facts struct {
	said  types
	types types // the types of its form: where keywords imply a type and none is said, theirs

	enum    []any
	hasEnum bool

	low, high *bound
	multiple  *big.Rat

	minLength, maxLength int // maxLength -1: no limit
	patterns, formats    []string

	prefix             [][]any // schemas of an array's first items
	items              []any   // of the others
	minItems, maxItems int

	members members
}

// meaning is the types whose values a keyword restricts; 0: all.
var meaning = map[string]types{
	"minimum": typeNumber | typeInteger, "maximum": typeNumber | typeInteger, "multipleOf": typeNumber | typeInteger,
	"exclusiveMinimum": typeNumber | typeInteger, "exclusiveMaximum": typeNumber | typeInteger,
	"minLength": typeString, "maxLength": typeString, "pattern": typeString, "contentEncoding": typeString,
	"items": typeArray, "prefixItems": typeArray, "additionalItems": typeArray, "minItems": typeArray, "maxItems": typeArray,
	"properties": typeObject, "required": typeObject, "additionalProperties": typeObject, "patternProperties": typeObject,
	"propertyNames": typeObject, "minProperties": typeObject, "maxProperties": typeObject,
	"type": 0, "enum": 0, "const": 0, "format": 0, "anyOf": 0, "oneOf": 0, "unevaluatedProperties": 0,
}

// facts leaves out, with loose, keywords that depend on alternatives not chosen yet.
func (c *schemaReader) facts(parts []part, loose bool) *facts {
	f := &facts{said: allTypes, maxLength: -1, maxItems: -1}
	f.members.maxProps = -1
	var hinted types
	mean := c.strict
	for _, p := range parts {
		if !c.spend(8) {
			return f
		}
		hinted |= c.types(f, p.o)
		mean = mean || p.one
		c.enum(f, p.o)
		c.number(f, p.o)
		c.text(f, p.o)
		c.array(f, p.o)
	}
	c.object(&f.members, parts, loose)
	f.types = f.said
	if mean && f.said == allTypes && hinted != 0 && !f.hasEnum {
		f.types = hinted
	}
	if f.whole() {
		f.types &^= typeNumber
	}
	return f
}

// types restricts the types, and returns those that keywords imply.
func (c *schemaReader) types(f *facts, o *object) (hinted types) {
	for _, k := range o.keys {
		hinted |= meaning[k]
	}
	if name, ok := o.get("format").(string); ok {
		if _, isNumber := numberFormats[name]; isNumber {
			hinted |= typeInteger
		} else {
			hinted |= typeString
		}
	}
	if !o.has("type") {
		return hinted
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
	f.said &= t
	return hinted
}

func (c *schemaReader) enum(f *facts, o *object) {
	limit := func(values []any) {
		if f.hasEnum {
			values = c.common(f.enum, values)
		}
		f.enum, f.hasEnum = values, true
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
	if f.hasEnum {
		var t types
		for _, v := range f.enum {
			t |= typeOf(v)
		}
		f.said &= t
	}
}

func typeOf(v any) types {
	switch v := v.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case json.Number:
		if r, ok := parseNumber(v.String()); ok && r.IsInt() {
			return typeInteger
		}
		return typeNumber
	case string:
		return typeString
	case []any:
		return typeArray
	}
	return typeObject
}

const maxBits = 4096

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
				set(&bound{at: r, strict: o.get(flag) == true}) // draft 4
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
	case f.multiple != nil:
		a, b := new(big.Int).Mul(m.Num(), f.multiple.Denom()), new(big.Int).Mul(f.multiple.Num(), m.Denom())
		gcd := new(big.Int).GCD(nil, nil, a, b)
		f.multiple = new(big.Rat).SetFrac(a.Mul(a, b.Div(b, gcd)), new(big.Int).Mul(m.Denom(), f.multiple.Denom()))
		if f.multiple.Num().BitLen() > maxBits || f.multiple.Denom().BitLen() > maxBits {
			c.fail("the multipleOf of one value together have too many digits")
		}
	default:
		f.multiple = m
	}
}

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
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, keyword := range []string{"pattern", "format"} {
		if !o.has(keyword) {
			continue
		}
		text, ok := o.get(keyword).(string)
		if !ok {
			c.fail("%s of the schema is no string", keyword)
		}
		if keyword == "pattern" && text == "" {
			continue
		}
		if keyword == "pattern" {
			add(&f.patterns, text)
		} else {
			add(&f.formats, text)
		}
	}
	if o.get("contentEncoding") == "base64" {
		add(&f.formats, "byte")
	}
}
