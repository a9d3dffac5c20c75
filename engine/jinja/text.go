package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// upper and lower are those of Python, which know the letters that change their number ("ß") and the final sigma.
func (r *run) upper(s string) string {
	r.grow(3 * len(s))
	r.step(len(s) >> 6)
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func (r *run) lower(s string) string {
	r.grow(3 * len(s))
	r.step(len(s) >> 6)
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// titleRune is the first letter of a word.
func titleRune(c rune) string {
	switch c {
	case 'ß':
		return "Ss"
	case 'ŉ', 'ǰ', 'ΐ', 'ΰ', 'և', 'ẖ', 'ẗ', 'ẘ', 'ẙ', 'ẚ', 'ﬀ', 'ﬁ', 'ﬂ', 'ﬃ', 'ﬄ', 'ﬅ', 'ﬆ':
		u := []rune(cases.Upper(language.Und).String(string(c)))
		return string(u[0]) + cases.Lower(language.Und).String(string(u[1:]))
	}
	return string(unicode.ToTitle(c))
}

func (r *run) capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return titleRune(c) + r.lowerAfter(s, n)
}

// lowerAfter is the rest of s behind n bytes, in lower case as a part of s.
func (r *run) lowerAfter(s string, n int) string {
	whole, first := r.lower(s), r.lower(s[:n])
	return strings.TrimPrefix(whole, first)
}

// cased says whether c has upper and lower case.
func cased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}

func isLower(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }
func isUpper(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

// title is str.title: a capital behind each character without case.
func (r *run) title(s string) string {
	r.grow(3 * len(s))
	r.step(len(s) >> 5)
	var b strings.Builder
	lower, at, inside := r.lower(s), 0, false
	for _, c := range s {
		low := string(unicode.ToLower(c))
		if c == 'İ' {
			low = "i̇"
		}
		if c == 'Σ' { // the whole text says whether it is a final one
			_, n := utf8.DecodeRuneInString(lower[at:])
			low = lower[at : at+n]
		}
		at += len(low)
		if inside {
			b.WriteString(low)
		} else {
			b.WriteString(titleRune(c))
		}
		inside = cased(c)
	}
	return b.String()
}

func (r *run) swapcase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == 'Σ':
			r.fail("swapcase of a capital sigma is not supported")
		case isUpper(c):
			b.WriteString(r.lower(string(c)))
		case isLower(c):
			b.WriteString(r.upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// everyRune says whether s is not empty and all its characters are of a kind.
func everyRune(s string, is func(rune) bool) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
}

// digitsOnly are the characters of category No that are digits to Python.
var digitsOnly = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1}, {0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1}, {0x24ea, 0x24ea, 1}, {0x24f5, 0x24fd, 1},
		{0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1}, {0x278a, 0x2792, 1},
	},
	R32: []unicode.Range32{{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1}},
}

// numerals are letters that mean numbers.
const numerals = "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零參拾兩零六陸什𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭廾"

func isDecimal(c rune) bool { return unicode.Is(unicode.Nd, c) }
func isDigit(c rune) bool   { return isDecimal(c) || unicode.Is(digitsOnly, c) }
func isNumeric(c rune) bool { return unicode.IsNumber(c) || strings.ContainsRune(numerals, c) }

// hasCase is islower and isupper: all letters with case are of one, and there is one.
func hasCase(s string, want, not func(rune) bool) bool {
	found := false
	for _, c := range s {
		if not(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || want(c)
	}
	return found
}

func isTitle(s string) bool {
	found, inside := false, false
	for _, c := range s {
		switch {
		case isUpper(c) || unicode.IsTitle(c):
			if inside {
				return false
			}
			inside, found = true, true
		case isLower(c):
			if !inside {
				return false
			}
			found = true
		default:
			inside = false
		}
	}
	return found
}

func isIdentifier(s string) bool {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && !unicode.Is(unicode.Nl, c) &&
			(i == 0 || !unicode.IsDigit(c) && !unicode.Is(unicode.Mn, c) && !unicode.Is(unicode.Mc, c) && !unicode.Is(unicode.Pc, c)) {
			return false
		}
	}
	return s != ""
}

// isLineEnd is what str.splitlines splits at.
func isLineEnd(c rune) bool {
	return c == '\n' || c == '\r' || c == '\v' || c == '\f' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

func (r *run) splitLines(s string, keep bool) []string {
	r.grow(len(s))
	out := []string{}
	for s != "" {
		i := strings.IndexFunc(s, isLineEnd)
		if i < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		r.grow(valueSize)
		if keep {
			out = append(out, s[:i+n])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+n:]
	}
	return out
}

// texts makes a list of strings.
func (r *run) texts(parts []string) *List {
	r.growList(2 * len(parts))
	l := &List{make([]any, len(parts))}
	for i, p := range parts {
		l.items[i] = p
	}
	return l
}

func (r *run) splitAt(s, sep string, most int, last bool) []string {
	if most == 0 {
		return []string{s}
	}
	if most < 0 || most > len(s) {
		return strings.Split(s, sep)
	}
	if !last {
		return strings.SplitN(s, sep, most+1)
	}
	var back []string
	for len(back) < most {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		back = append(back, s[i+len(sep):])
		s = s[:i]
	}
	return backwards(append(back, s))
}

func backwards(parts []string) []string {
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// splitSpace splits at runs of white space. With a limit, what is left at the far end keeps its white space.
func splitSpace(s string, most int, last bool) []string {
	if most < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	parts := []string{}
	for {
		if last {
			s = strings.TrimRightFunc(s, isSpace)
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if s == "" {
			break
		}
		word, rest := s, ""
		if len(parts) < most {
			if at := strings.IndexFunc(s, isSpace); !last && at >= 0 {
				word, rest = s[:at], s[at:]
			}
			if at := strings.LastIndexFunc(s, isSpace); last && at >= 0 {
				_, n := utf8.DecodeRuneInString(s[at:])
				word, rest = s[at+n:], s[:at]
			}
		}
		parts = append(parts, word)
		s = rest
	}
	if last {
		return backwards(parts)
	}
	return parts
}

// pad makes s as wide as width with fill to its left and right.
func (r *run) pad(s string, left, right int, fill string) string {
	left, right = max(left, 0), max(right, 0)
	r.grow(times(left+right, len(fill)) + len(s))
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, right)
}

// center is str.center; where the space is odd, Python puts the rest to the left for an odd width.
func (r *run) center(s string, width int, fill string) string {
	space := width - utf8.RuneCountInString(s)
	if space <= 0 {
		return s
	}
	left := space/2 + (space & width & 1)
	return r.pad(s, left, space-left, fill)
}
