package constrain

import (
	"math/big"
)

// formats are the formats that are kept, as regular expressions. They are
// narrower than their standards where those have more than people write.
var formats = map[string]string{
	"date":      datePattern,
	"time":      timePattern,
	"date-time": datePattern + `T` + timePattern,
	"duration":  `P(\d{1,4}W|(\d{1,4}Y(\d{1,2}M(\d{1,3}D)?)?|\d{1,2}M(\d{1,3}D)?|\d{1,3}D)(T(\d{1,3}H(\d{1,3}M(\d{1,3}S)?)?|\d{1,3}M(\d{1,3}S)?|\d{1,3}S))?|T(\d{1,3}H(\d{1,3}M(\d{1,3}S)?)?|\d{1,3}M(\d{1,3}S)?|\d{1,3}S))`,
	"email":     `[A-Za-z0-9_%+-]{1,20}(\.[A-Za-z0-9_%+-]{1,20}){0,2}@([a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\.){1,4}[a-z]{2,10}`,
	"hostname":  `([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\.){0,4}[a-z]([a-z0-9-]{0,30}[a-z0-9])?`,
	"ipv4":      octet + `(\.` + octet + `){3}`,
	"ipv6":      `([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|::([0-9a-f]{1,4})?`,
	"uuid":      `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	"uri":       `[a-z][a-z0-9+-]{1,14}://([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\.){0,4}[a-z]([a-z0-9-]{0,30}[a-z0-9])?(:[1-9]\d{0,3})?(/[A-Za-z0-9._~-]{0,60}){0,10}(\?[A-Za-z0-9._~=&-]{0,200})?(#[A-Za-z0-9._~-]{0,60})?`,
}

const (
	datePattern = `(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|\d\d(0[48]|[2468][048]|[13579][26])-02-29)`
	timePattern = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`
	octet       = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
)

// value is the form of a value of which everything is said.
func (c *schemaReader) value(f *facts) expr {
	if c.err != nil {
		return choice{}
	}
	x := choice{}
	if f.hasEnum {
		for _, v := range f.enum {
			if c.fits(f, v) {
				x = append(x, literal(writeJSON(v)))
			}
		}
		return x
	}
	add := func(t types, form func(*facts) expr) {
		if f.types&t != 0 {
			x = append(x, form(f))
		}
	}
	add(typeObject, c.objectForm)
	add(typeArray, c.arrayForm)
	add(typeString, c.stringForm)
	add(typeNumber|typeInteger, c.numberForm)
	add(typeBoolean, func(*facts) expr { return oneOf(literal("true"), literal("false")) })
	add(typeNull, func(*facts) expr { return literal("null") })
	if len(x) == 1 {
		return x[0]
	}
	return x
}

// stringForm is the form of a string.
func (c *schemaReader) stringForm(f *facts) expr {
	length := repeat{c.json.char, f.minLength, f.maxLength}
	var x expr
	for _, p := range f.patterns {
		x = c.both(x, c.pattern(p))
	}
	for _, name := range f.formats {
		if p := formats[name]; p != "" {
			y, _, err := parseRegex(p, jsonClass)
			if err != nil {
				panic("constrain: the pattern of the format " + name + " is broken")
			}
			x = c.both(x, y)
		}
	}
	switch limited := f.minLength > 0 || f.maxLength >= 0; {
	case x == nil && !limited:
		return c.json.text
	case x == nil:
		return quoted(length)
	case limited:
		length.x = jsonClass(anyChar())
		x = c.both(x, length)
	}
	return quoted(x)
}

// pattern is the strings that a pattern of a schema allows, in the spelling of jsonText.
func (c *schemaReader) pattern(p string) expr {
	x, fixed, err := parseRegex(p, jsonClass)
	if err != nil {
		c.fail("%v", err)
		return choice{}
	}
	if x == nil {
		x = sequence{}
	}
	rest := repeat{jsonClass(anyChar()), 0, -1}
	switch {
	case fixed.begin && !fixed.end:
		return seq(x, rest)
	case fixed.end && !fixed.begin:
		return seq(rest, x)
	}
	return x
}

// both is the texts that two forms without rules have; nil is every text.
func (c *schemaReader) both(x, y expr) expr {
	if x == nil || y == nil || c.err != nil {
		if x == nil {
			return y
		}
		return x
	}
	var graphs [2]*graph
	for i, z := range []expr{x, y} {
		g, ok := z.(*graph)
		if !ok {
			var err error
			if g, err = newGraph(z); err != nil {
				c.fail("%v", err)
				return choice{}
			}
		}
		graphs[i] = g
	}
	g, err := intersect(graphs[0], graphs[1])
	if err != nil {
		c.fail("%v", err)
		return choice{}
	}
	return g
}

// maxMultiple bounds multipleOf: the automaton has a place for each remainder.
const maxMultiple = 10000

// numberForm is the form of a number.
//
//  1. No limits: any number, any integer.
//  2. multipleOf a power of ten below 1: so many places behind the point.
//  3. multipleOf an integer: an integer that it divides.
//  4. Else the numbers, or integers, between the limits.
func (c *schemaReader) numberForm(f *facts) expr {
	whole := f.types&typeNumber == 0
	if f.low == nil && f.high == nil && f.multiple == nil { // 1
		if whole {
			return c.json.integer
		}
		return c.json.number
	}
	places := -1
	if f.multiple != nil && !f.multiple.IsInt() { // 2
		inverse := new(big.Rat).Inv(f.multiple)
		if digits, exact := f.multiple.FloatPrec(); exact && inverse.IsInt() && inverse.Num().String() == "1"+zeros(digits) {
			places = digits
		} else {
			c.fail("multipleOf of the schema is %s: want an integer, or 0.1, 0.01 and so on", f.multiple.RatString())
			return choice{}
		}
	}
	if f.multiple != nil && f.multiple.IsInt() { // 3
		m := f.multiple.Num()
		if m.Cmp(big.NewInt(maxMultiple)) > 0 {
			c.fail("multipleOf of the schema is %s: want at most %d", m, maxMultiple)
			return choice{}
		}
		return c.both(c.integersBetween(f), multiples(int(m.Int64())))
	}
	if whole { // 4
		return c.integersBetween(f)
	}
	x, err := decimals(f.low, f.high, places)
	if err != nil {
		c.fail("%v", err)
		return choice{}
	}
	return x
}

func zeros(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return string(b)
}

// integersBetween is the integers within the limits.
func (c *schemaReader) integersBetween(f *facts) expr {
	var lo, hi *big.Int
	if f.low != nil {
		lo = floor(f.low.at)
		if !f.low.at.IsInt() || f.low.strict {
			lo.Add(lo, big.NewInt(1))
		}
	}
	if f.high != nil {
		hi = floor(f.high.at)
		if f.high.at.IsInt() && f.high.strict {
			hi.Sub(hi, big.NewInt(1))
		}
	}
	if lo != nil && hi != nil && lo.Cmp(hi) > 0 {
		return choice{}
	}
	return integers(lo, hi)
}

// floor is the largest integer that is not above r.
func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclid's division, and the denominator is positive
}

// exclusive refuses alternatives of oneOf that one value may fit at once, as far as can be seen.
func (c *schemaReader) exclusive(base []part, branches [][]part) {
	var all []*facts
	for _, b := range branches {
		all = append(all, c.facts(append(base[:len(base):len(base)], b...)))
	}
	for i, f := range all {
		for j, g := range all[:i] {
			if !c.disjoint(f, g) {
				c.fail("alternatives %d and %d of oneOf in the schema may both fit one value: use anyOf, or tell them apart by type, by a const or by a required property", j+1, i+1)
				return
			}
		}
	}
}

// disjoint says whether no value that the forms make of f and of g is one that both allow.
//
//  1. They have no type in common.
//  2. Both are lists of values without a common one.
//  3. Both are objects; one requires a property that the other forbids, or both require one with disjoint values.
func (c *schemaReader) disjoint(f, g *facts) bool {
	common := f.types & g.types
	if common == 0 { // 1
		return true
	}
	if f.hasEnum && g.hasEnum { // 2
		for _, v := range f.enum {
			for _, w := range g.enum {
				if equalJSON(v, w) {
					return false
				}
			}
		}
		return true
	}
	if common != typeObject || f.hasEnum || g.hasEnum {
		return false
	}
	for _, pair := range [][2]*facts{{f, g}, {g, f}} { // 3
		a, b := pair[0], pair[1]
		for _, name := range a.required {
			p, q := a.property(name), b.property(name)
			if q == nil && b.closed && len(b.patternProperties) == 0 {
				return true
			}
			if p == nil || q == nil || !contains(b.required, name) {
				continue
			}
			var left, right []part
			if !c.collectAll(p.schemas, &left) || !c.collectAll(q.schemas, &right) {
				return true
			}
			if x, y := c.facts(left), c.facts(right); x.hasEnum && y.hasEnum && c.disjoint(x, y) {
				return true
			}
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (c *schemaReader) collectAll(schemas []any, parts *[]part) bool {
	for _, s := range schemas {
		if !c.collect(s, parts, nil) {
			return false
		}
	}
	return true
}

// property finds a property by its name.
func (f *facts) property(name string) *property {
	for i := range f.properties {
		if f.properties[i].name == name {
			return &f.properties[i]
		}
	}
	return nil
}
