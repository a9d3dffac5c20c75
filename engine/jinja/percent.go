package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// percent is format % v, Python's older formatting.
func (r *run) percent(format string, v any) string {
	r.step(len(format) >> 6)
	p := &percentFormat{r: r, rest: format, single: v}
	switch v := v.(type) {
	case *tuple:
		p.args, p.isTuple = v.items, true
	case *Dict, *List, *undefined, *rangeValue:
		p.mapping = true
	}
	for {
		i := strings.IndexByte(p.rest, '%')
		if i < 0 {
			break
		}
		p.write(p.rest[:i])
		p.rest = p.rest[i+1:]
		p.field()
	}
	p.write(p.rest)
	left := p.isTuple && p.used < len(p.args) || !p.isTuple && p.used == 0
	if left && !p.mapping {
		r.fail("not all arguments converted during string formatting")
	}
	return p.out.String()
}

type percentFormat struct {
	r       *run
	rest    string
	out     strings.Builder
	single  any // the value, where it is no tuple
	args    []any
	used    int
	isTuple bool
	mapping bool
}

func (p *percentFormat) write(s string) {
	p.r.add(&p.out, s)
}

func (p *percentFormat) next() any {
	p.used++
	switch {
	case p.isTuple && p.used <= len(p.args):
		return p.args[p.used-1]
	case !p.isTuple && p.used == 1:
		return p.single
	}
	p.r.fail("not enough arguments for format string")
	return nil
}

func (p *percentFormat) peek() byte {
	if p.rest == "" {
		p.r.fail("incomplete format")
	}
	return p.rest[0]
}

// number reads a width or precision: digits, or * for the next argument.
func (p *percentFormat) number() int {
	if p.peek() == '*' {
		p.rest = p.rest[1:]
		v := p.next()
		if !isInt(v) {
			p.r.fail("* wants int")
		}
		return p.r.number("*", v)
	}
	n := 0
	for decimal(p.peek()) {
		n = min(n*10+int(p.rest[0]-'0'), 1<<40)
		p.rest = p.rest[1:]
	}
	return n
}

// field formats one %…, whose sign has been read.
func (p *percentFormat) field() {
	r := p.r
	value, named := any(nil), false
	if p.peek() == '(' {
		value, named = p.named(), true
	}
	s := spec{align: '>', fill: " "}
	for strings.IndexByte("#0- +", p.peek()) >= 0 {
		switch c := p.rest[0]; c {
		case '#':
			s.alternate = true
		case '0':
			s.zero = true
		case '-':
			s.align = '<'
		case ' ':
			if s.sign == 0 {
				s.sign = c
			}
		default:
			s.sign = c
		}
		p.rest = p.rest[1:]
	}
	s.width = p.number()
	if s.width < 0 {
		s.width, s.align = -s.width, '<'
	}
	s.precision = -1
	if p.peek() == '.' {
		p.rest = p.rest[1:]
		s.precision = max(p.number(), 0)
	}
	for c := p.peek(); c == 'h' || c == 'l' || c == 'L'; c = p.peek() {
		p.rest = p.rest[1:]
	}
	s.kind = p.peek()
	p.rest = p.rest[1:]
	if s.kind == '%' {
		p.write("%")
		return
	}
	if !named {
		value = p.next()
	}
	if s.align == '<' {
		s.zero = false
	}
	p.write(r.percentValue(&s, value))
}

// named reads (key) and returns the value of the key.
func (p *percentFormat) named() any {
	depth, end := 0, -1
	for i := range len(p.rest) {
		if p.rest[i] == '(' {
			depth++
		}
		if p.rest[i] == ')' {
			if depth--; depth == 0 {
				end = i
				break
			}
		}
	}
	if !p.mapping {
		p.r.fail("format requires a mapping")
	}
	if end < 0 {
		p.r.fail("incomplete format key")
	}
	key := p.rest[1:end]
	p.rest = p.rest[end+1:]
	p.r.check(p.single)
	d, ok := p.single.(*Dict)
	if !ok {
		p.r.fail("format requires a mapping")
	}
	v, ok := d.find(key)
	if !ok {
		p.r.fail("the format's key '%s' is not in the mapping", key)
	}
	p.used++
	return v
}

func (r *run) percentValue(s *spec, v any) string {
	switch s.kind {
	case 's', 'r', 'a':
		text := ""
		switch s.kind {
		case 's':
			text = r.str(v)
		case 'r':
			text = r.reprOf(v)
		default:
			text = ascii(r.reprOf(v))
		}
		s.zero = false
		return r.padded(s, r.cut(text, s.precision))
	case 'c':
		s.zero = false
		return r.padded(s, r.percentChar(v))
	case 'd', 'i', 'u', 'x', 'X', 'o':
		r.check(v)
		if f, ok := v.(float64); ok && s.kind != 'x' && s.kind != 'X' && s.kind != 'o' {
			v = r.truncate(f)
		}
		if !isInt(v) {
			r.fail("%%%c format: a number is required, not %s", s.kind, typeName(v))
		}
		return r.percentInt(s, bigOf(v))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		r.check(v)
		if s.precision < 0 {
			s.precision = 6
		}
		return r.padNumber(s, r.floatText(s, r.float(v)))
	}
	r.fail("unsupported format character '%c'", s.kind)
	return ""
}

func (r *run) percentChar(v any) string {
	if s, ok := v.(string); ok && utf8.RuneCountInString(s) == 1 {
		return s
	}
	n, ok := small(v)
	if !ok || n < 0 || n > utf8.MaxRune {
		r.fail("%%c requires int or char")
	}
	return string(rune(n))
}

// percentInt formats a whole number; its precision is the least number of digits.
func (r *run) percentInt(s *spec, b *big.Int) string {
	r.step(b.BitLen() >> 4)
	digits := ""
	switch s.kind {
	case 'x', 'X':
		digits = new(big.Int).Abs(b).Text(16)
	case 'o':
		digits = new(big.Int).Abs(b).Text(8)
	default:
		digits = new(big.Int).Abs(b).String()
	}
	if n := s.precision - len(digits); n > 0 {
		r.grow(n)
		digits = strings.Repeat("0", n) + digits
	}
	prefix := ""
	if s.alternate && strings.IndexByte("xXo", s.kind) >= 0 {
		prefix = "0" + string(s.kind)
	}
	if s.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	sign := ""
	if b.Sign() < 0 {
		sign = "-"
	}
	return r.padNumber(s, numberText{sign, prefix, digits})
}

// truncate is int(f).
func (r *run) truncate(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail("cannot convert float %s to integer", floatRepr(f))
	}
	b, _ := big.NewFloat(f).Int(nil)
	return r.whole(b)
}

// ascii writes the characters beyond ASCII as escapes.
func ascii(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		escapeRune(&b, c)
	}
	return b.String()
}
