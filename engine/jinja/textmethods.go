package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// text is an argument that must be a string.
func (r *run) text(fn string, v any) string {
	s, ok := unmark(v).(string)
	if !ok {
		r.check(v)
		r.fail("%s wants a str, not '%s'", fn, typeName(v))
	}
	return s
}

// number is an argument that must be a whole number; it is cut to what no text is long enough for.
func (r *run) number(fn string, v any) int {
	r.check(v)
	if !isInt(v) {
		r.fail("%s wants an int, not '%s'", fn, typeName(v))
	}
	n, ok := small(v)
	if !ok {
		n = int64(bigOf(v).Sign()) << 40
	}
	return int(max(min(n, 1<<40), -1<<40))
}

// plain is a method without arguments.
func plain(name string, f func(r *run, s string) any) method {
	return func(r *run, self any, a args) any {
		r.bind(name, a, 0)
		s := self.(string)
		r.step(len(s) >> 6)
		return f(r, s)
	}
}

// textMethods are those of str.
func textMethods() map[string]method {
	m := map[string]method{
		"upper":      plain("upper", func(r *run, s string) any { return r.upper(s) }),
		"lower":      plain("lower", func(r *run, s string) any { return r.lower(s) }),
		"casefold":   plain("casefold", casefold),
		"title":      plain("title", func(r *run, s string) any { return r.title(s) }),
		"capitalize": plain("capitalize", func(r *run, s string) any { return r.capitalize(s) }),
		"swapcase":   plain("swapcase", func(r *run, s string) any { return r.swapcase(s) }),
		"isascii":    plain("isascii", func(_ *run, s string) any { return isASCII(s) }),
		"islower":    plain("islower", func(_ *run, s string) any { return hasCase(s, isLower, isUpper) }),
		"isupper":    plain("isupper", func(_ *run, s string) any { return hasCase(s, isUpper, isLower) }),
		"istitle":    plain("istitle", func(_ *run, s string) any { return isTitle(s) }),
		"isprintable": plain("isprintable", func(_ *run, s string) any {
			return s == "" || everyRune(s, printable)
		}),
		"isidentifier": plain("isidentifier", func(_ *run, s string) any { return isIdentifier(s) }),
		"strip":        strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
		"split": split(false), "rsplit": split(true), "splitlines": splitLines,
		"partition": partition(false), "rpartition": partition(true),
		"replace": replace, "join": joinTexts, "format": formatMethod, "format_map": formatMap, "expandtabs": expandTabs,
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"removeprefix": cut("removeprefix", strings.TrimPrefix), "removesuffix": cut("removesuffix", strings.TrimSuffix),
		"find": find("find", strings.Index, false), "rfind": find("rfind", strings.LastIndex, false),
		"index": find("index", strings.Index, true), "rindex": find("rindex", strings.LastIndex, true),
		"count": countText, "zfill": zfill,
		"center": justify("center", func(r *run, s string, width int, fill string) string { return r.center(s, width, fill) }),
		"ljust": justify("ljust", func(r *run, s string, width int, fill string) string {
			return r.pad(s, 0, width-utf8.RuneCountInString(s), fill)
		}),
		"rjust": justify("rjust", func(r *run, s string, width int, fill string) string {
			return r.pad(s, width-utf8.RuneCountInString(s), 0, fill)
		}),
	}
	for name, is := range map[string]func(rune) bool{
		"isdigit": isDigit, "isdecimal": isDecimal, "isnumeric": isNumeric, "isalpha": unicode.IsLetter, "isspace": isSpace,
		"isalnum": func(c rune) bool { return unicode.IsLetter(c) || isNumeric(c) },
	} {
		m[name] = plain(name, func(_ *run, s string) any { return everyRune(s, is) })
	}
	return m
}

func casefold(r *run, s string) any {
	if !isASCII(s) {
		r.fail("casefold of text beyond ASCII is not supported: use lower")
	}
	return r.lower(s)
}

func strip(left, right bool) method {
	return func(r *run, self any, a args) any {
		return r.strip(self.(string), or(r.bind("strip", a, 0, "/chars")[0], nil), left, right)
	}
}

func (r *run) strip(s string, chars any, left, right bool) string {
	is := isSpace
	if chars != nil {
		set := r.text("strip", chars)
		r.step(len(s) >> 4)
		is = func(c rune) bool { r.step(len(set) >> 6); return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

func split(last bool) method {
	return func(r *run, self any, a args) any {
		s := self.(string)
		p := r.bind("split", a, 0, "sep", "maxsplit")
		most := r.number("split", or(p[1], int64(-1)))
		r.grow(len(s))
		sep := or(p[0], nil)
		if sep == nil {
			return r.texts(splitSpace(s, most, last))
		}
		at := r.text("split", sep)
		if at == "" {
			r.fail("split: empty separator")
		}
		r.growList(strings.Count(s, at))
		return r.texts(r.splitAt(s, at, most, last))
	}
}

func splitLines(r *run, self any, a args) any {
	keep := or(r.bind("splitlines", a, 0, "keepends")[0], false)
	return r.texts(r.splitLines(self.(string), r.number("splitlines", keep) != 0))
}

func partition(last bool) method {
	return func(r *run, self any, a args) any {
		s, sep := self.(string), r.text("partition", r.bind("partition", a, 1, "/sep")[0])
		if sep == "" {
			r.fail("partition: empty separator")
		}
		r.grow(4*valueSize + len(s)>>6)
		i := strings.Index(s, sep)
		if last {
			i = strings.LastIndex(s, sep)
		}
		switch {
		case i >= 0:
			return &tuple{items: []any{s[:i], sep, s[i+len(sep):]}}
		case last:
			return &tuple{items: []any{"", "", s}}
		}
		return &tuple{items: []any{s, "", ""}}
	}
}

func replace(r *run, self any, a args) any {
	p := r.bind("replace", a, 2, "/old", "/new", "/count")
	return r.replace(self.(string), r.text("replace", p[0]), r.text("replace", p[1]), r.number("replace", or(p[2], int64(-1))))
}

func (r *run) replace(s, from, to string, n int) string {
	r.step(len(s) >> 6)
	found := strings.Count(s, from)
	if n < 0 || n > found {
		n = found
	}
	r.grow(len(s) + times(n, len(to)))
	return strings.Replace(s, from, to, n)
}

func joinTexts(r *run, self any, a args) any {
	v := r.bind("join", a, 1, "/iterable")[0]
	items := r.list(v)
	parts := make([]string, len(items))
	for i, e := range items {
		s, ok := unmark(e).(string)
		if !ok {
			r.fail("sequence item %d: expected str instance, %s found", i, typeName(e))
		}
		parts[i] = s
	}
	return r.join2(parts, self.(string))
}

// join2 is sep.join(parts).
func (r *run) join2(parts []string, sep string) string {
	n := times(max(len(parts)-1, 0), len(sep))
	for _, p := range parts {
		n += len(p)
	}
	r.grow(n)
	return strings.Join(parts, sep)
}

// part is s[start:end] by characters, and where it begins, in bytes; false where nothing can be found in it.
func (r *run) part(fn, s string, start, end any) (string, int, bool) {
	if start == nil && end == nil {
		return s, 0, true
	}
	n := utf8.RuneCountInString(s)
	r.step(len(s) >> 6)
	from, to, _, ok := r.bounds(n, start, end, nil)
	if !ok {
		r.fail("%s: start and end must be numbers", fn)
	}
	if i, isInt := small(start); from > to || isInt && i > int64(n) {
		return "", 0, false
	}
	a, b := byteOffset(s, from), byteOffset(s, to)
	return s[a:b], a, true
}

// byteOffset is where character n of s begins.
func byteOffset(s string, n int) int {
	for at := range s {
		if n == 0 {
			return at
		}
		n--
	}
	return len(s)
}

func find(name string, search func(s, sub string) int, must bool) method {
	return func(r *run, self any, a args) any {
		p := r.bind(name, a, 1, "/sub", "/start", "/end")
		s, sub := self.(string), r.text(name, p[0])
		r.step(len(s) >> 6)
		part, at, ok := r.part(name, s, or(p[1], nil), or(p[2], nil))
		i := -1
		if ok {
			i = search(part, sub)
		}
		if i < 0 {
			if must {
				r.fail("substring not found")
			}
			return int64(-1)
		}
		return int64(utf8.RuneCountInString(s[:at+i]))
	}
}

func countText(r *run, self any, a args) any {
	p := r.bind("count", a, 1, "/sub", "/start", "/end")
	r.step(len(self.(string)) >> 6)
	part, _, ok := r.part("count", self.(string), or(p[1], nil), or(p[2], nil))
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(part, r.text("count", p[0])))
}

func affix(name string, has func(s, affix string) bool) method {
	return func(r *run, self any, a args) any {
		p := r.bind(name, a, 1, "/affix", "/start", "/end")
		s, _, ok := r.part(name, self.(string), or(p[1], nil), or(p[2], nil))
		t, many := p[0].(*tuple)
		if !many {
			t = &tuple{items: p[:1]}
		}
		for _, e := range t.items {
			r.step(1)
			if has(s, r.text(name, e)) {
				return ok
			}
		}
		return false
	}
}

func cut(name string, f func(s, affix string) string) method {
	return func(r *run, self any, a args) any {
		return f(self.(string), r.text(name, r.bind(name, a, 1, "/affix")[0]))
	}
}

func justify(name string, f func(r *run, s string, width int, fill string) string) method {
	return func(r *run, self any, a args) any {
		p := r.bind(name, a, 1, "/width", "/fill")
		fill := r.text(name, or(p[1], " "))
		if utf8.RuneCountInString(fill) != 1 {
			r.fail("%s: the fill character must be exactly one character long", name)
		}
		return f(r, self.(string), r.number(name, p[0]), fill)
	}
}

func zfill(r *run, self any, a args) any {
	s := self.(string)
	width := r.number("zfill", r.bind("zfill", a, 1, "/width")[0])
	space := width - utf8.RuneCountInString(s)
	sign := ""
	if space > 0 && s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	return sign + r.pad(s, space, 0, "0")
}

func expandTabs(r *run, self any, a args) any {
	size := r.number("expandtabs", or(r.bind("expandtabs", a, 0, "tabsize")[0], int64(8)))
	var b strings.Builder
	column := 0
	for _, c := range self.(string) {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				r.extend(&b, n)
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		r.extend(&b, 1)
		b.WriteRune(c)
		column++
	}
	return b.String()
}
