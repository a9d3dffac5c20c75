package constrain

import (
	"strings"
	"sync"
	"unicode"
)

// The classes of escapes: the characters in all implementations' class, and in any's.
var (
	digitsNarrow = class{{'0', '9'}}
	spacesNarrow = class{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}
	spacesWide   = class{{'\t', '\r'}, {0x1C, ' '}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
	wordsNarrow  = class{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}

	digitsWide = sync.OnceValue(func() class { return append(ofTable(unicode.Nd), unassigned()...).normal() })
	wordsWide  = sync.OnceValue(func() class {
		c := append(ofTable(unicode.L), ofTable(unicode.N)...)
		c = append(append(c, ofTable(unicode.M)...), ofTable(unicode.Pc)...)
		return append(append(c, wordsNarrow...), unassigned()...).normal()
	})
	// may be assigned in other versions of Unicode
	unassigned = sync.OnceValue(func() class { return ofTable(unicode.Cn) })
)

func ofTable(t *unicode.RangeTable) (c class) {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			c = append(c, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			c = append(c, span{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return c.normal()
}

func classEscape(r rune, wide bool) (class, bool) {
	not := unicode.IsUpper(r)
	pick := func(narrow, all class) (class, bool) {
		c := narrow
		if wide != not {
			c = all
		}
		if not {
			return c.not(), true
		}
		return c, true
	}
	switch unicode.ToLower(r) {
	case 'd':
		return pick(digitsNarrow, digitsWide())
	case 's':
		return pick(spacesNarrow, spacesWide)
	case 'w':
		return pick(wordsNarrow, wordsWide())
	}
	return nil, false
}

func (p *ecmaParser) property(not, wide bool) class {
	end := strings.IndexByte(p.text[p.at:], '}')
	if !p.take("{") || end < 0 {
		p.fail("\\p without {…} is not ECMA-262")
		return nil
	}
	text := p.text[p.at : p.at+end-1]
	p.at += end
	key, value, keyed := strings.Cut(text, "=")
	var table *unicode.RangeTable
	switch {
	case keyed && (key == "Script" || key == "sc"):
		table = unicode.Scripts[value]
	case keyed && (key == "General_Category" || key == "gc"):
		table = category(value)
	case text == "ASCII":
		table = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0, Hi: unicode.MaxASCII, Stride: 1}}}
	case text == "Any":
		table = &unicode.RangeTable{R32: []unicode.Range32{{Lo: 0, Hi: unicode.MaxRune, Stride: 1}}}
	case text == "White_Space":
		table = unicode.White_Space
	case !keyed:
		table = category(text)
	}
	if table == nil {
		p.fail("the property %s is not supported: want a general category, or Script=… with the script's whole name", clip(text))
		return nil
	}
	c := ofTable(table)
	if wide != not {
		c = append(c, unassigned()...)
	}
	if not {
		return c.not()
	}
	return c
}

func category(name string) *unicode.RangeTable {
	if long, ok := unicode.CategoryAliases[name]; ok {
		name = long
	}
	if name == "Cn" || name == "C" || name == "LC" {
		return nil // unions of others, which are not in the tables
	}
	return unicode.Categories[name]
}

func (p *ecmaParser) class() class {
	not := p.take("^")
	if p.peek() == ']' {
		p.fail("[] and [^] mean different things to different readers: want . or [\\s\\S] for any character")
	}
	wide := p.wide != not
	c := class{}
	for p.err == nil && p.peek() != ']' {
		if p.at >= len(p.text) {
			p.fail("a ] is missing")
			return nil
		}
		if strings.HasPrefix(p.text[p.at:], "[:") {
			p.fail("[: is not ECMA-262: want the characters themselves")
			return nil
		}
		from, single := p.member(wide)
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			to, alsoSingle := p.member(wide)
			if !single || !alsoSingle {
				p.fail("a class has a range from or to more than one character")
				return nil
			}
			if from[0].lo > to[0].hi {
				p.fail("a class has a range that goes backwards")
			}
			from = class{{from[0].lo, to[0].hi}}
		}
		c = append(c, from...)
	}
	p.take("]")
	if not {
		return c.not()
	}
	return c
}

func (p *ecmaParser) member(wide bool) (c class, single bool) {
	if !p.take(`\`) {
		r := p.rune()
		return class{{r, r}}, true
	}
	if p.take("b") {
		return class{{'\b', '\b'}}, true
	}
	return p.escape(wide)
}
