package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is str(v).
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	case nil:
		return "None"
	case int64:
		return strconv.FormatInt(v, 10)
	}
	var b strings.Builder
	r.repr(&b, v)
	return b.String()
}

// reprOf is repr(v).
func (r *run) reprOf(v any) string {
	var b strings.Builder
	r.repr(&b, v)
	return b.String()
}

// repr writes repr(v).
func (r *run) repr(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		r.grow(v.BitLen() / 3)
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		r.extend(b, len(v))
		quote(b, v)
	case markup:
		r.extend(b, len(v))
		b.WriteString("Markup(")
		quote(b, string(v))
		b.WriteByte(')')
	case *macro:
		if v.def.name == "" {
			b.WriteString("<Macro anonymous>")
		} else {
			b.WriteString("<Macro '" + v.def.name + "'>")
		}
	case *undefined:
		b.WriteString("Undefined")
	case *loop:
		fmt.Fprintf(b, "<LoopContext %d/%d>", v.index0+1, v.length(r))
	default:
		r.reprOfMany(b, v)
	}
}

// reprOfMany writes repr(v) of a value that holds others.
func (r *run) reprOfMany(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *List:
		b.WriteByte('[')
		r.reprItems(b, len(v.items), func(i int) any { return v.items[i] })
		b.WriteByte(']')
	case *tuple:
		b.WriteByte('(')
		r.reprItems(b, len(v.items), func(i int) any { return v.items[i] })
		if len(v.items) == 1 {
			b.WriteByte(',')
		}
		b.WriteByte(')')
	case *Dict:
		r.reprDict(b, v)
	case *rangeValue:
		fmt.Fprintf(b, "range(%d, %d", v.from, v.to)
		if v.step != 1 {
			fmt.Fprintf(b, ", %d", v.step)
		}
		b.WriteByte(')')
	case *view:
		b.WriteString(v.kind + "([")
		r.reprItems(b, v.of.Len(), v.at)
		b.WriteString("])")
	case *namespace:
		b.WriteString("<Namespace ")
		r.reprDict(b, v.fields)
		b.WriteByte('>')
	default:
		r.fail("the text of a '%s' object is not supported: call it or read its elements", typeName(v))
	}
}

func (r *run) reprItems(b *strings.Builder, n int, at func(int) any) {
	r.walk()
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		r.extend(b, 4)
		r.repr(b, at(i))
	}
	r.walking--
}

func (r *run) reprDict(b *strings.Builder, d *Dict) {
	r.walk()
	b.WriteByte('{')
	for i := range d.entries {
		if i > 0 {
			b.WriteString(", ")
		}
		r.extend(b, 8)
		r.repr(b, d.entries[i].key)
		b.WriteString(": ")
		r.repr(b, d.entries[i].value)
	}
	b.WriteByte('}')
	r.walking--
}

// quote writes repr of a string.
func quote(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case printable(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteByte(q)
}

// printable is str.isprintable of one character.
func printable(c rune) bool {
	return c == ' ' || unicode.IsGraphic(c) && !unicode.Is(unicode.Z, c)
}

// floatRepr is repr of a float.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
