package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textFilters are the filters of texts and numbers.
func textFilters() map[string]filter {
	simple := func(name string, f func(r *run, s string) any) filter {
		return func(r *run, in any, a args) any {
			r.bind(name, a, 0)
			return f(r, r.str(in))
		}
	}
	return map[string]filter{
		"upper":      simple("upper", func(r *run, s string) any { return r.upper(s) }),
		"lower":      simple("lower", func(r *run, s string) any { return r.lower(s) }),
		"capitalize": simple("capitalize", func(r *run, s string) any { return r.capitalize(s) }),
		"title":      simple("title", titleFilter),
		"string":     simple("string", func(_ *run, s string) any { return s }),
		"wordcount":  simple("wordcount", wordCount),
		"trim": func(r *run, in any, a args) any {
			return r.strip(r.str(in), or(r.bind("trim", a, 0, "chars")[0], nil), true, true)
		},
		"center": func(r *run, in any, a args) any {
			return r.center(r.str(in), r.number("center", or(r.bind("center", a, 0, "width")[0], int64(80))), " ")
		},
		"replace": func(r *run, in any, a args) any {
			p := r.bind("replace", a, 2, "old", "new", "count")
			n := or(p[2], nil)
			if n == nil {
				n = int64(-1)
			}
			return r.replace(r.str(in), r.str(p[0]), r.str(p[1]), r.number("replace", n))
		},
		"format": func(r *run, in any, a args) any {
			if len(a.pos) > 0 && len(a.names) > 0 {
				r.fail("format can't handle positional and keyword arguments at the same time")
			}
			if len(a.names) > 0 {
				return r.percent(r.str(in), makeDict(r, a))
			}
			return r.percent(r.str(in), &tuple{items: a.pos})
		},
		"int": intFilter, "float": floatFilter, "round": round, "indent": indent, "truncate": truncate,
		"urlencode": urlEncode, "filesizeformat": fileSize,
	}
}

// titleFilter capitalizes what follows white space and opening brackets.
func titleFilter(r *run, s string) any {
	var b strings.Builder
	starts := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	for s != "" {
		n := strings.IndexFunc(s, func(c rune) bool { return !starts(c) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		if s = s[n:]; s == "" {
			break
		}
		end := strings.IndexFunc(s, starts)
		if end < 0 {
			end = len(s)
		}
		_, n = utf8.DecodeRuneInString(s)
		b.WriteString(r.upper(s[:n]))
		b.WriteString(r.lower(s[n:end]))
		s = s[end:]
	}
	return b.String()
}

func wordCount(r *run, s string) any {
	r.step(len(s) >> 4)
	return int64(len(strings.FieldsFunc(s, func(c rune) bool {
		return c != '_' && !unicode.IsLetter(c) && !isNumeric(c)
	})))
}

// asciiDigits turns the decimal digits of other scripts into ours, and takes the white space at the ends and single
// underscores between digits off; false where underscores stand elsewhere.
func asciiDigits(s string) (string, bool) {
	s = strings.TrimFunc(s, isSpace)
	s = strings.Map(func(c rune) rune {
		if c < 0x80 || !isDecimal(c) {
			return c
		}
		for _, t := range unicode.Nd.R16 {
			if c >= rune(t.Lo) && c <= rune(t.Hi) {
				return '0' + (c-rune(t.Lo))%10
			}
		}
		for _, t := range unicode.Nd.R32 {
			if c >= rune(t.Lo) && c <= rune(t.Hi) {
				return '0' + (c-rune(t.Lo))%10
			}
		}
		return c
	}, s)
	alnum := func(i int) bool {
		return i >= 0 && i < len(s) && (decimal(s[i]) || s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z')
	}
	for i := range len(s) {
		if s[i] == '_' && (!alnum(i-1) || !alnum(i+1)) {
			return s, false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// parseInt is int(s, base); false where Python raises ValueError.
func (r *run) parseInt(s string, base int) (any, bool) {
	s, ok := asciiDigits(s)
	if !ok || base == 1 || base < 0 || base > 36 {
		return nil, false
	}
	if len(s) > maxBits/4 {
		r.fail("a number of %d digits is not supported", len(s))
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		prefix := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'O': 8, 'b': 2, 'B': 2}[s[1]]
		switch {
		case prefix != 0 && (prefix == base || base == 0):
			s, base = s[2:], prefix
		case base == 0 && strings.Trim(s, "0") != "":
			return nil, false
		}
	}
	if base == 0 {
		base = 10
	}
	if s == "" || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+s, base)
	if !ok {
		return nil, false
	}
	return r.whole(b), true
}

// parseFloat is float(s).
func parseFloat(s string) (float64, bool) {
	s, ok := asciiDigits(s)
	if !ok || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0) && !strings.Contains(strings.ToLower(s), "inf")
}

// toFloat is float(v), false where Python raises TypeError or ValueError.
func (r *run) toFloat(v any) (float64, bool) {
	r.check(v)
	if s, ok := unmark(v).(string); ok {
		return parseFloat(s)
	}
	if !isNumber(v) {
		return 0, false
	}
	return r.float(v), true
}

func intFilter(r *run, in any, a args) any {
	p := r.bind("int", a, 0, "default", "base")
	r.check(in)
	if s, ok := unmark(in).(string); ok {
		if n, ok := r.parseInt(s, r.number("int", or(p[1], int64(10)))); ok {
			return n
		}
	} else if isInt(in) {
		return r.arithmetic("+", int64(0), in)
	}
	f, ok := r.toFloat(in)
	if !ok || math.IsNaN(f) {
		return or(p[0], int64(0))
	}
	return r.truncate(f)
}

func floatFilter(r *run, in any, a args) any {
	p := r.bind("float", a, 0, "default")
	if f, ok := r.toFloat(in); ok {
		return f
	}
	return or(p[0], 0.0)
}

func round(r *run, in any, a args) any {
	p := r.bind("round", a, 0, "precision", "method")
	how := or(p[1], "common")
	if how != "common" && how != "ceil" && how != "floor" {
		r.fail("the method of round must be common, ceil or floor")
	}
	r.check(in)
	n := r.number("round", or(p[0], int64(0)))
	if !isNumber(in) {
		r.fail("type %s doesn't define __round__ method", typeName(in))
	}
	if how != "common" {
		if n > 300 || n < -300 {
			r.fail("round: a precision of %d is not supported", n)
		}
		scale := r.arithmetic("**", int64(10), int64(n))
		v := r.arithmetic("*", in, scale)
		if f, ok := v.(float64); ok {
			if how == "ceil" {
				f = math.Ceil(f)
			} else {
				f = math.Floor(f)
			}
			v = r.truncate(f)
		}
		return r.arithmetic("/", v, scale)
	}
	f, isFloat := in.(float64)
	switch {
	case !isFloat && n >= 0:
		return r.arithmetic("+", int64(0), in)
	case n < 0:
		r.fail("round with a negative precision is not supported")
	case math.IsNaN(f) || math.IsInf(f, 0) || n > 323:
		return f
	}
	v, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64) // a float's own text always parses
	return v
}

func indent(r *run, in any, a args) any {
	p := r.bind("indent", a, 0, "width", "first", "blank")
	s := r.text("indent", in)
	by, ok := or(p[0], int64(4)).(string)
	if !ok {
		by = r.pad("", r.number("indent", or(p[0], int64(4))), 0, " ")
	}
	lines := r.splitLines(s+"\n", false)
	r.grow(len(s) + times(len(lines), len(by)))
	blank := r.truth(or(p[2], false))
	for i := range lines {
		if i > 0 && (blank || lines[i] != "") {
			lines[i] = by + lines[i]
		}
	}
	text := strings.Join(lines, "\n")
	if r.truth(or(p[1], false)) {
		text = by + text
	}
	return text
}

func truncate(r *run, in any, a args) any {
	p := r.bind("truncate", a, 0, "length", "killwords", "end", "leeway")
	limit, end := r.number("truncate", or(p[0], int64(255))), r.text("truncate", or(p[2], "..."))
	leeway := or(p[3], nil)
	if leeway == nil {
		leeway = int64(5)
	}
	slack := r.number("truncate", leeway)
	if limit < utf8.RuneCountInString(end) || slack < 0 {
		r.fail("truncate: the length must be at least that of the end, and leeway at least 0")
	}
	n, ok := length(in)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(in))
	}
	if n <= limit+slack {
		return in
	}
	s := r.text("truncate", in)
	r.grow(len(s) >> 2)
	s = r.cut(s, limit-utf8.RuneCountInString(end))
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !r.truth(or(p[1], false)) {
		s = s[:i]
	}
	return s + end
}

// quoteURL is urllib's quote.
func quoteURL(s string, query bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case decimal(c), c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("_.-~", c) >= 0, c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)+256, 16)[1:]))
		}
	}
	return b.String()
}

func urlEncode(r *run, in any, a args) any {
	r.bind("urlencode", a, 0)
	next, ok := r.iterator(in)
	if s, isText := in.(string); isText || !ok {
		if !isText {
			s = r.str(in)
		}
		r.grow(3 * len(s))
		return quoteURL(s, false)
	}
	if d, ok := in.(*Dict); ok {
		next = r.iterate(&view{d, "dict_items"})
	}
	var parts []string
	for {
		v, ok := next()
		if !ok {
			return r.join2(parts, "&")
		}
		pair := r.unpack(v, 2)
		k, e := r.str(pair[0]), r.str(pair[1])
		r.grow(3 * (len(k) + len(e)))
		parts = append(parts, quoteURL(k, true)+"="+quoteURL(e, true))
	}
}

func fileSize(r *run, in any, a args) any {
	p := r.bind("filesizeformat", a, 0, "binary")
	n, ok := r.toFloat(in)
	if !ok {
		r.fail("filesizeformat wants a number")
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if r.truth(or(p[0], false)) {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case n == 1:
		return "1 Byte"
	case n < base:
		return r.str(r.truncate(n)) + " Bytes"
	}
	size := base
	for i, unit := range units {
		size *= base
		if n < size || i == len(units)-1 {
			return strconv.FormatFloat(base*n/size, 'f', 1, 64) + " " + unit
		}
	}
	return nil
}

// knownFilter says whether Jinja has a filter of that name.
func knownFilter(name string) bool { return filters[name] != nil || refusedFilters[name] }
