package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is how a value is to be formatted: Python's format specification.
type spec struct {
	fill      string
	align     byte // < > ^ =; 0 for the type's own
	sign      byte // + - or space; 0 for -
	alternate bool
	zero      bool
	width     int
	group     string // "," or "_"
	precision int    // -1 for none
	kind      byte   // 0 for none
}

// numberText is the text of a number in its parts.
type numberText struct{ sign, prefix, digits string }

func escapeRune(b *strings.Builder, c rune) {
	switch {
	case c < 0x80:
		b.WriteRune(c)
	case c < 0x100:
		fmt.Fprintf(b, `\x%02x`, c)
	case c < 0x10000:
		fmt.Fprintf(b, `\u%04x`, c)
	default:
		fmt.Fprintf(b, `\U%08x`, c)
	}
}

// cut is the first n characters of s; all of them where n is negative.
func (r *run) cut(s string, n int) string {
	if n < 0 || n >= len(s) {
		return s
	}
	r.step(n >> 6)
	return s[:byteOffset(s, n)]
}

// padded fills a text up to the width.
func (r *run) padded(s *spec, text string) string {
	n := s.width - utf8.RuneCountInString(text)
	if n <= 0 {
		return text
	}
	switch s.align {
	case '>':
		return r.pad(text, n, 0, s.fill)
	case '^':
		return r.pad(text, n/2, n-n/2, s.fill)
	}
	return r.pad(text, 0, n, s.fill)
}

// padNumber puts the parts of a number together.
func (r *run) padNumber(s *spec, t numberText) string {
	if t.sign == "" && (s.sign == '+' || s.sign == ' ') {
		t.sign = string(s.sign)
	}
	if s.zero || s.align == '=' {
		fill := s.fill
		if s.zero && s.align != '=' || fill == "" {
			fill = "0"
		}
		n := s.width - len(t.sign) - len(t.prefix) - len(t.digits)
		return t.sign + t.prefix + r.pad(t.digits, n, 0, fill)
	}
	return r.padded(s, t.sign+t.prefix+t.digits)
}

// floatText is the text of a float without padding, by kind e, f, g or %.
func (r *run) floatText(s *spec, f float64) numberText {
	t := numberText{}
	if math.Signbit(f) && !math.IsNaN(f) {
		t.sign, f = "-", -f
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		t.digits = floatRepr(f)
		if s.kind == 'E' || s.kind == 'F' || s.kind == 'G' {
			t.digits = strings.ToUpper(t.digits)
		}
		if s.kind == '%' {
			t.digits += "%"
		}
		return t
	}
	p := s.precision
	r.grow(p)
	r.step(p)
	switch s.kind {
	case 'e', 'E':
		t.digits = strconv.FormatFloat(f, 'e', p, 64)
	case 'f', 'F':
		t.digits = strconv.FormatFloat(f, 'f', p, 64)
	case '%':
		t.digits = strconv.FormatFloat(f*100, 'f', p, 64) + "%"
	default:
		t.digits = general(f, max(p, 1), s.alternate)
	}
	if s.alternate && p == 0 && !strings.Contains(t.digits, ".") && s.kind != 'g' && s.kind != 'G' {
		at := strings.IndexAny(t.digits, "e%")
		if at < 0 {
			at = len(t.digits)
		}
		t.digits = t.digits[:at] + "." + t.digits[at:]
	}
	if s.kind == 'E' || s.kind == 'G' {
		t.digits = strings.ToUpper(t.digits)
	}
	return t
}

// general is %g: p significant digits, without zeros at the end unless they are wanted.
func general(f float64, p int, zeros bool) string {
	e := strconv.FormatFloat(f, 'e', p-1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:]) // FormatFloat always writes one
	mantissa, tail := e[:strings.IndexByte(e, 'e')], e[strings.IndexByte(e, 'e'):]
	if exp >= -4 && exp < p {
		mantissa, tail = strconv.FormatFloat(f, 'f', p-1-exp, 64), ""
	}
	if zeros {
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
	} else if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// parseSpec reads a format specification.
func (r *run) parseSpec(text string) *spec {
	s := &spec{precision: -1}
	rest := text
	if _, n := utf8.DecodeRuneInString(rest); n > 0 && len(rest) > n && strings.IndexByte("<>^=", rest[n]) >= 0 {
		s.fill, s.align = rest[:n], rest[n]
		rest = rest[n+1:]
	} else if rest != "" && strings.IndexByte("<>^=", rest[0]) >= 0 {
		s.align = rest[0]
		rest = rest[1:]
	}
	take := func(set string) byte {
		if rest == "" || strings.IndexByte(set, rest[0]) < 0 {
			return 0
		}
		c := rest[0]
		rest = rest[1:]
		return c
	}
	number := func() int {
		n := -1
		for rest != "" && decimal(rest[0]) {
			n = min(max(n, 0)*10+int(rest[0]-'0'), 1<<40)
			rest = rest[1:]
		}
		return n
	}
	s.sign = take("+- ")
	s.alternate = take("#") != 0
	if take("0") != 0 {
		if s.zero = s.align == 0; s.zero {
			s.align = '='
		}
		if s.fill == "" {
			s.fill = "0"
		}
	}
	s.width = max(number(), 0)
	if c := take(",_"); c != 0 {
		s.group = string(c)
	}
	if take(".") != 0 {
		if s.precision = number(); s.precision < 0 {
			r.fail("format specifier missing precision")
		}
	}
	if rest != "" {
		s.kind = take("bcdeEfFgGnosxX%")
	}
	if rest != "" {
		r.fail("invalid format specifier '%s'", text)
	}
	if s.fill == "" {
		s.fill = " "
	}
	return s
}

// format is format(v, text).
func (r *run) format(v any, text string) string {
	if text == "" {
		return r.str(v)
	}
	s := r.parseSpec(text)
	switch v := unmark(v).(type) {
	case string:
		return r.formatText(s, v)
	case float64:
		return r.formatFloat(s, v)
	case bool, int64, *big.Int:
		switch s.kind {
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			return r.formatFloat(s, r.float(v))
		}
		return r.formatInt(s, bigOf(v))
	}
	r.check(v)
	r.fail("unsupported format string passed to %s.__format__", typeName(v))
	return ""
}

func (r *run) formatText(s *spec, v string) string {
	if s.kind != 0 && s.kind != 's' || s.sign != 0 || s.alternate || s.group != "" || s.align == '=' && !s.zero {
		r.fail("the format does not fit a str")
	}
	if s.zero {
		s.align = '<'
	}
	return r.padded(s, r.cut(v, s.precision))
}

func (r *run) formatInt(s *spec, b *big.Int) string {
	if s.precision >= 0 {
		r.fail("precision not allowed in integer format specifier")
	}
	base, size := 10, 3
	switch s.kind {
	case 0, 'd':
	case 'b':
		base, size = 2, 4
	case 'o':
		base, size = 8, 4
	case 'x', 'X':
		base, size = 16, 4
	case 'c':
		if s.sign != 0 || s.alternate || s.group != "" {
			r.fail("sign, # and grouping are not allowed with the format 'c'")
		}
		if s.align == 0 {
			s.align = '<'
		}
		return r.padded(s, r.percentChar(r.whole(b)))
	default:
		r.fail("the format '%c' is not supported for an int", s.kind)
	}
	if size == 4 && s.group == "," {
		r.fail("cannot specify ',' with '%c'", s.kind)
	}
	r.step(b.BitLen() >> 4)
	t := numberText{digits: new(big.Int).Abs(b).Text(base)}
	if b.Sign() < 0 {
		t.sign = "-"
	}
	if s.alternate && base != 10 {
		t.prefix = "0" + string(s.kind)
	}
	if s.kind == 'X' {
		t.digits = strings.ToUpper(t.digits)
	}
	return r.padGrouped(s, t, size)
}

func (r *run) formatFloat(s *spec, f float64) string {
	var t numberText
	switch s.kind {
	case 0:
		t = r.floatDefault(s, f)
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		if s.precision < 0 {
			s.precision = 6
		}
		t = r.floatText(s, f)
	default:
		r.fail("the format '%c' is not supported for a float", s.kind)
	}
	return r.padGrouped(s, t, 3)
}

// floatDefault is a float without a kind: as repr, or as %g with a digit behind the point.
func (r *run) floatDefault(s *spec, f float64) numberText {
	if s.precision < 0 {
		t := numberText{digits: floatRepr(math.Abs(f))}
		if math.Signbit(f) && !math.IsNaN(f) {
			t.sign = "-"
		}
		return t
	}
	g := *s
	g.kind, g.precision = 'g', max(s.precision, 1)
	t := r.floatText(&g, f)
	if !strings.ContainsAny(t.digits, ".en") {
		// Python goes over to the exponent one digit earlier here
		if e := strconv.FormatFloat(math.Abs(f), 'e', g.precision-1, 64); len(t.digits) >= g.precision {
			at := strings.IndexByte(e, 'e')
			m := e[:at]
			if strings.Contains(m, ".") {
				m = strings.TrimRight(strings.TrimRight(m, "0"), ".")
			}
			t.digits = m + e[at:]
		} else {
			t.digits += ".0"
		}
	}
	return t
}

// padGrouped puts separators between groups of digits and fills up to the width.
func (r *run) padGrouped(s *spec, t numberText, size int) string {
	if s.align == 0 {
		s.align = '>'
	}
	if infinite := strings.ContainsAny(t.digits, "nN"); s.group != "" && !infinite { // inf and nan have no digits to group
		at := strings.IndexAny(t.digits, ".e%")
		if at < 0 || size == 4 { // e is a digit of a hexadecimal number
			at = len(t.digits)
		}
		whole := t.digits[:at]
		if s.align == '=' && s.fill == "0" { // the zeros are grouped too
			room := s.width - (len(t.digits) - at) - len(t.sign) - len(t.prefix)
			digits := room - room/(size+1)
			if room%(size+1) == 0 { // a separator can't come first
				digits++
			}
			whole = r.pad(whole, digits-len(whole), 0, "0")
		}
		r.grow(2 * len(whole))
		r.step(len(whole) >> 3)
		var b strings.Builder
		for i := range len(whole) {
			if i > 0 && (len(whole)-i)%size == 0 {
				b.WriteString(s.group)
			}
			b.WriteByte(whole[i])
		}
		t.digits = b.String() + t.digits[at:]
	}
	s.zero = false
	return r.padNumber(s, t)
}
