package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

func (m *meter) str(v any) string {
	switch v := v.(type) {
	case string:
		m.step(len(v) >> 6)
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return m.repr(v)
}

func (m *meter) repr(v any) string {
	var b strings.Builder
	m.writeRepr(&b, v)
	return b.String()
}

func (m *meter) writeRepr(b *strings.Builder, v any) {
	n, at, _ := elements(v)
	all := func(open, end string, element func(i int)) {
		defer m.walk()()
		m.add(b, open)
		for i := range n {
			if i > 0 {
				m.add(b, ", ")
			}
			element(i)
		}
		m.add(b, end)
	}
	one := func(i int) { m.writeRepr(b, at(i)) }
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case bigInt:
		m.add(b, string(v))
	case float64:
		m.add(b, floatRepr(v))
	case string:
		m.grow(len(v))
		m.add(b, quote(v))
	case markup:
		m.add(b, "Markup("+quote(string(v))+")")
	case *undefined:
		b.WriteString("Undefined")
	case *List:
		all("[", "]", one)
	case *tuple:
		all("(", map[bool]string{true: ",)", false: ")"}[n == 1], one)
	case *view:
		all(v.kind+"([", "])", one)
	case *Dict:
		all("{", "}", func(i int) {
			one(i)
			m.add(b, ": ")
			m.writeRepr(b, v.entries[i].value)
		})
	default:
		m.fail("the text of a '%s' object is not supported: call it or read its elements", typeName(v))
	}
}

func quote(s string) string {
	var b strings.Builder
	q := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteRune(q)
	for _, c := range s {
		switch {
		case c == q || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n' || c == '\r' || c == '\t':
			b.WriteString(jsonEscapes[c])
		case c == ' ' || unicode.IsGraphic(c) && !unicode.Is(unicode.Z, c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(q)
	return b.String()
}

func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'f', -1, 64)), "+")
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

// isSpace is str.isspace of one character, and \s of Python's expressions.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// cased returns s in a case, with Python's rules for letters that change their number ("ß") and the final sigma.
func (m *meter) cased(s string, ascii func(string) string, of func(language.Tag, ...cases.Option) cases.Caser) string {
	m.grow(3 * len(s))
	m.step(len(s) >> 6)
	if isASCII(s) {
		return ascii(s)
	}
	return of(language.Und).String(s)
}

func (m *meter) upper(s string) string { return m.cased(s, strings.ToUpper, cases.Upper) }
func (m *meter) lower(s string) string { return m.cased(s, strings.ToLower, cases.Lower) }

func titleRune(c rune) string { return cases.Title(language.Und, cases.NoLower).String(string(c)) }

func (m *meter) capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return titleRune(c) + strings.TrimPrefix(m.lower(s), m.lower(s[:n])) // only the whole text shows which sigma is final
}

// title puts a capital after each character without case, as str.title does.
func (m *meter) title(s string) string {
	m.grow(3 * len(s))
	m.step(len(s) >> 5)
	var b strings.Builder
	lower, at, inside := m.lower(s), 0, false
	for _, c := range s {
		low := string(unicode.ToLower(c))
		if c == 'İ' {
			low = "i̇"
		}
		if c == 'Σ' { // only the whole text shows whether it is a final one
			_, n := utf8.DecodeRuneInString(lower[at:])
			low = lower[at : at+n]
		}
		at += len(low)
		if inside {
			b.WriteString(low)
		} else {
			b.WriteString(titleRune(c))
		}
		inside = unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.In(c, unicode.Other_Lowercase, unicode.Other_Uppercase)
	}
	return b.String()
}

var titleWord = lazyregexp.New(`[^-({[<\s\v\x1c-\x1f\x{85}\pZ]+`)

// titleWords is the filter title.
func (m *meter) titleWords(s string) string {
	m.step(len(s) >> 4)
	return titleWord().ReplaceAllStringFunc(s, func(w string) string {
		_, n := utf8.DecodeRuneInString(w)
		return m.upper(w[:n]) + m.lower(w[n:])
	})
}

func (m *meter) strip(s string, chars any, left, right bool) string {
	is := isSpace
	if chars != nil {
		set := m.text("strip", chars)
		m.step(len(s) >> 4)
		is = func(c rune) bool { m.step(len(set) >> 6); return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

// replace replaces all if n is negative.
func (m *meter) replace(s, from, to string, n int) string {
	m.step(len(s) >> 6)
	found := strings.Count(s, from)
	if n < 0 || n > found {
		n = found
	}
	m.grow(len(s) + times(n, len(to)))
	return strings.Replace(s, from, to, n)
}

func (m *meter) joinTexts(parts []string, sep string) string {
	n := times(len(parts)-1, len(sep))
	for _, p := range parts {
		n += len(p)
	}
	m.grow(n)
	return strings.Join(parts, sep)
}

func (m *meter) texts(parts []string) *List {
	m.growList(2 * len(parts))
	l := &List{make([]any, len(parts))}
	for i, p := range parts {
		l.items[i] = p
	}
	return l
}

// cut returns the first n characters.
func (m *meter) cut(s string, n int) string {
	m.step(n >> 6)
	for at := range s {
		if n == 0 {
			return s[:at]
		}
		n--
	}
	return s
}

// splitAt implements str.split and str.rsplit with a separator; most is negative for no limit.
func splitAt(s, sep string, most int, last bool) []string {
	if most < 0 || most > len(s) {
		return strings.Split(s, sep)
	}
	if !last {
		return strings.SplitN(s, sep, most+1)
	}
	parts := strings.Split(s, sep)
	if n := len(parts) - most; n > 1 {
		parts = append([]string{strings.Join(parts[:n], sep)}, parts[n:]...)
	}
	return parts
}

// With a limit, the rest at the far end keeps its white space.
func splitSpace(s string, most int, last bool) []string {
	words := strings.FieldsFunc(s, isSpace)
	if most < 0 || most >= len(words) {
		return words
	}
	if last {
		kept := words[len(words)-most:]
		for i := len(kept) - 1; i >= 0; i-- {
			s = strings.TrimSuffix(strings.TrimRightFunc(s, isSpace), kept[i])
		}
		return append([]string{strings.TrimRightFunc(s, isSpace)}, kept...)
	}
	for _, w := range words[:most] {
		s = strings.TrimPrefix(strings.TrimLeftFunc(s, isSpace), w)
	}
	return append(words[:most:most], strings.TrimLeftFunc(s, isSpace))
}

var lineEnd = lazyregexp.New(`\r\n|[\n-\r\x1c-\x1e\x{85}\x{2028}\x{2029}]`)

func (m *meter) splitLines(s string) []string {
	m.grow(2 * len(s))
	m.step(len(s) >> 4)
	lines := lineEnd().Split(s, -1)
	m.growList(len(lines))
	if n := len(lines) - 1; lines[n] == "" {
		return lines[:n]
	}
	return lines
}

var directive = lazyregexp.New(`^%([-0+ ]*)(\d{0,9})(\.\d{1,9})?([srdif%])`)

// percent returns format % v, with the kinds s, r, d, i, f and %.
func percent(m *meter, format string, v any) string {
	m.step(len(format) >> 6)
	values, mapping := []any{v}, false
	switch v := v.(type) {
	case *tuple:
		values = v.items
	case *Dict, *List, *undefined, *rangeValue: // may be unused
		mapping = true
	}
	var out strings.Builder
	used := 0
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			break
		}
		m.add(&out, format[:at])
		f := directive().FindStringSubmatch(format[at:])
		if f == nil || f[3] != "" && (f[4] == "d" || f[4] == "i") {
			m.fail("the format '%s' is not supported", m.cut(format[at:], 9))
		}
		if format = format[at+len(f[0]):]; f[4] == "%" {
			m.add(&out, "%")
			continue
		}
		if used++; used > len(values) {
			m.fail("not enough arguments for format string")
		}
		m.add(&out, m.directive(f[1], f[2], f[3], f[4], values[used-1]))
	}
	m.add(&out, format)
	if used < len(values) && !mapping {
		m.fail("not all arguments converted during string formatting")
	}
	return out.String()
}

// directive formats a value as Go does, which is the same for supported directives.
func (m *meter) directive(flags, width, precision, kind string, v any) string {
	for _, n := range []string{width, strings.TrimPrefix(precision, ".")} {
		size, _ := strconv.Atoi(n) // digits, or nothing
		m.grow(size)
		m.step(size)
	}
	switch kind {
	case "s", "r":
		text := m.str(v)
		if kind == "r" {
			text = m.repr(v)
		}
		return fmt.Sprintf("%"+strings.Trim(flags, "0+ ")+width+precision+"s", text)
	case "f":
		m.check(v)
		f := m.float(v)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			m.fail("%%f of %s is not supported", floatRepr(f))
		}
		return fmt.Sprintf("%"+flags+width+precision+"f", f)
	}
	if f, ok := v.(float64); ok {
		v = m.whole(f)
	}
	n, ok := small(v)
	if !ok {
		m.check(v)
		if isInt(v) {
			m.fail("%%%s of a number beyond 64 bits is not supported", kind)
		}
		m.fail("%%%s format: a number is required, not %s", kind, typeName(v))
	}
	return fmt.Sprintf("%"+flags+width+"d", n)
}

func (m *meter) whole(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		m.fail("cannot convert float %s to integer", floatRepr(f))
	}
	return truncate(math.Trunc(f))
}
