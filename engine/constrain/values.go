package constrain

import (
	"encoding/json"
	"math/big"
	"unicode/utf8"
)

func (c *schemaReader) value(f *facts) expr {
	if c.err != nil {
		return choice{}
	}
	x := choice{}
	if f.hasEnum {
		for _, v := range f.enum {
			if c.fits(f, v) {
				text := writeJSON(v)
				c.meter.spend(len(text)/16, exprSize+len(text))
				x = append(x, literal(text))
			}
		}
		return x
	}
	add := func(t types, form func(*facts) expr) {
		if f.types&t != 0 {
			x = append(x, form(f))
		}
	}
	add(typeObject, func(f *facts) expr { return c.objectForm(&f.members) })
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

func (c *schemaReader) fits(f *facts, v any) bool {
	if !c.spend(1) || f.said&typeOf(v) == 0 {
		return false
	}
	switch v := v.(type) {
	case json.Number:
		r, ok := parseNumber(v.String())
		if !ok {
			c.fail("enum of the schema has the number %s: want one within what a float64 holds", clip(v.String()))
			return false
		}
		return c.fitsNumber(f, r)
	case string:
		return c.fitsText(f, v)
	case []any:
		if len(f.prefix) > 0 || f.items != nil {
			c.fail("enum or const of an array beside keywords for arrays is not supported")
		}
		return len(v) >= f.minItems && (f.maxItems < 0 || len(v) <= f.maxItems)
	case *object:
		if !f.members.free() {
			c.fail("enum or const of an object beside keywords for objects is not supported")
		}
	}
	return true
}

func (c *schemaReader) fitsNumber(f *facts, r *big.Rat) bool {
	if f.whole() && !r.IsInt() {
		return false
	}
	low, high := c.limits(f)
	if low != nil && (r.Cmp(low.at) < 0 || r.Cmp(low.at) == 0 && low.strict) {
		return false
	}
	if high != nil && (r.Cmp(high.at) > 0 || r.Cmp(high.at) == 0 && high.strict) {
		return false
	}
	return f.multiple == nil || new(big.Rat).Quo(r, f.multiple).IsInt()
}

func (c *schemaReader) fitsText(f *facts, s string) bool {
	if n := utf8.RuneCountInString(s); n < f.minLength || f.maxLength >= 0 && n > f.maxLength {
		return false
	}
	for _, source := range c.sources(f) {
		p := c.pattern(source)
		if p == nil {
			return false
		}
		if surely, _ := c.match(p, s); !surely {
			return false
		}
	}
	return c.err == nil
}
