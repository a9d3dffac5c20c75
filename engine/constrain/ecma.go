package constrain

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type node struct {
	op       op
	set      class
	subs     []*node
	min, max int  // opRepeat; max < 0: no limit
	not      bool // opAhead: must not follow
}

type op int

const (
	opConcat op = iota
	opSet
	opAlternate
	opRepeat
	opBegin
	opEnd
	opEdge   // \b
	opInside // \B
	opAhead
	opFound
)

// readECMA reads a regular expression of ECMA-262 with the flag u, as JSON schema requires, and with the escapes of
// punctuation that people write without it.
//
// Implementations differ in \s, \w and \d beyond ASCII, and in versions of Unicode. The result matches where all of
// them do; with wide, where any does. Syntax with different meanings ((?i), [[:alpha:]], \A, {,n}), back references
// and look-behind are refused.
func readECMA(text string, wide bool) (*node, error) {
	if len(text) > maxSource {
		return nil, formError("the pattern has %d bytes: want at most %d", len(text), maxSource)
	}
	if !utf8.ValidString(text) {
		return nil, formError("the pattern is not valid UTF-8")
	}
	p := &ecmaParser{scanner{text: text}, wide}
	n := p.alternatives()
	if p.err == nil && p.at < len(p.text) {
		p.fail("a ) without its (")
	}
	return n, p.err
}

type ecmaParser struct {
	scanner
	wide bool
}

func (p *ecmaParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = formError("the pattern "+strings.ReplaceAll(clip(p.text), "%", "%%")+" of the schema can't be used: "+format, args...)
	}
	p.at = len(p.text)
}

func (p *ecmaParser) alternatives() *node {
	if p.depth++; p.depth > maxDepth {
		p.fail("parentheses are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	n := &node{op: opAlternate, subs: []*node{p.sequence()}}
	for p.take("|") {
		n.subs = append(n.subs, p.sequence())
	}
	if len(n.subs) == 1 {
		return n.subs[0]
	}
	return n
}

func (p *ecmaParser) sequence() *node {
	n := &node{}
	for p.err == nil && p.at < len(p.text) && p.peek() != '|' && p.peek() != ')' {
		n.subs = append(n.subs, p.quantified(p.atom()))
	}
	if len(n.subs) == 1 {
		return n.subs[0]
	}
	return n
}

func (p *ecmaParser) atom() *node {
	switch c := p.peek(); c {
	case '^':
		p.at++
		return &node{op: opBegin}
	case '$':
		p.at++
		return &node{op: opEnd}
	case '(':
		p.at++
		return p.group()
	case '[':
		p.at++
		return &node{op: opSet, set: p.class()}
	case '.':
		p.at++
		return &node{op: opSet, set: class{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.not()}
	case '*', '+', '?':
		p.fail("%c has nothing to repeat", c)
	case '\\':
		p.at++
		switch {
		case p.take("b"):
			return &node{op: opEdge}
		case p.take("B"):
			return &node{op: opInside}
		}
		set, _ := p.escape(p.wide)
		return &node{op: opSet, set: set}
	case '{':
		if p.at++; p.counts() {
			p.fail("{ has nothing to repeat")
		}
		return one('{')
	}
	return one(p.rune())
}

func one(r rune) *node { return &node{op: opSet, set: class{{r, r}}} }

func (p *ecmaParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return r
}

func (p *ecmaParser) group() *node {
	var n *node
	switch {
	case p.take("?="), p.take("?!"):
		n = &node{op: opAhead, not: p.text[p.at-1] == '!'}
		wide := p.wide
		p.wide = wide != n.not // where less must match, more must not
		n.subs = []*node{p.alternatives()}
		p.wide = wide
	case p.take("?:"):
		n = p.alternatives()
	case p.take("?<=") || p.take("?<!"):
		p.fail("look-behind is not supported")
	case p.take("?<"):
		end := strings.IndexByte(p.text[p.at:], '>')
		if end <= 0 || !validGroup(p.text[p.at:p.at+end]) {
			p.fail("a group has no name")
			return &node{}
		}
		p.at += end + 1
		n = p.alternatives()
	case p.take("?"):
		p.fail("(?…) is not ECMA-262: flags are not supported")
	default:
		n = p.alternatives()
	}
	if p.err == nil && !p.take(")") {
		p.fail("a ) is missing")
	}
	if p.err != nil {
		return &node{}
	}
	return n
}

func validGroup(name string) bool {
	for i, r := range name {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return true
}

func (p *ecmaParser) quantified(n *node) *node {
	r := &node{op: opRepeat, subs: []*node{n}, max: -1}
	switch {
	case p.take("*"):
	case p.take("+"):
		r.min = 1
	case p.take("?"):
		r.max = 1
	case p.peek() == '{':
		p.at++
		if !p.counts() {
			p.at--
			return n
		}
		r.min, r.max = p.count()
	default:
		return n
	}
	p.take("?")
	if c := p.peek(); c == '*' || c == '+' || c == '?' {
		p.fail("%c has nothing to repeat", c)
	}
	if n.op >= opBegin {
		p.fail("a condition without a text is repeated")
	}
	return r
}

// counts reports whether a count follows {. It refuses what only some implementations read as a count.
func (p *ecmaParser) counts() bool {
	body, _, closed := strings.Cut(p.text[p.at:], "}")
	from, to, _ := strings.Cut(body, ",")
	if !closed || !allDigits(from) || !allDigits(to) || body == "" {
		return false
	}
	if from == "" {
		p.fail("{%s} is not ECMA-262: want {n}, {n,} or {n,m}", clip(body))
	}
	return true
}

func allDigits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func (p *ecmaParser) count() (least, most int) {
	end := strings.IndexByte(p.text[p.at:], '}')
	if end < 0 {
		return 0, 0
	}
	from, to, ranged := strings.Cut(p.text[p.at:p.at+end], ",")
	p.at += end + 1
	least, most = smallNumber(from), smallNumber(from)
	if ranged {
		if most = -1; to != "" {
			most = smallNumber(to)
		}
	}
	if most >= 0 && most < least {
		p.fail("a repetition of {%d,%d}: the second number is smaller", least, most)
	}
	return least, most
}

// smallNumber returns at most maxNodes.
func smallNumber(digits string) (n int) {
	for _, d := range digits {
		n = min(10*n+int(d-'0'), maxNodes)
	}
	return n
}

func (p *ecmaParser) escape(wide bool) (c class, single bool) {
	if p.at >= len(p.text) {
		p.fail("it ends with a backslash")
		return nil, false
	}
	r := p.rune()
	if c, ok := classEscape(r, wide); ok {
		return c, false
	}
	switch r {
	case 'p', 'P':
		return p.property(r == 'P', wide), false
	case 't':
		r = '\t'
	case 'n':
		r = '\n'
	case 'v':
		r = '\v'
	case 'f':
		r = '\f'
	case 'r':
		r = '\r'
	case '0':
		if d := p.peek(); d >= '0' && d <= '9' {
			p.fail("\\0 with a digit behind it is not ECMA-262")
		}
		r = 0
	case 'x':
		r = p.hex(2)
	case 'u':
		r = p.unicode()
	case 'c':
		l := p.peek() | 0x20
		if p.at++; l < 'a' || l > 'z' {
			p.fail("\\c wants a letter")
		}
		r = rune(l - 'a' + 1)
	default:
		if r >= 0x80 || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			p.fail("a backslash before %q is not ECMA-262, or is a reference back, which is not supported", r)
		}
	}
	return class{{r, r}}, true
}

func (p *ecmaParser) hex(digits int) (n rune) {
	for range digits {
		d := strings.IndexByte("0123456789abcdef", p.peek()|0x20)
		if p.peek() < '0' || d < 0 {
			p.fail("an escape wants %d hexadecimal digits", digits)
			return 0
		}
		n = 16*n + rune(d)
		p.at++
	}
	return n
}

// unicode reads \uHHHH, a pair of them, and \u{H…}.
func (p *ecmaParser) unicode() rune {
	if p.take("{") {
		end := strings.IndexByte(p.text[p.at:], '}')
		if end < 1 || end > 6 {
			p.fail("\\u{…} wants up to 6 hexadecimal digits")
			return 0
		}
		r := p.hex(end)
		if p.take("}"); r > utf8.MaxRune {
			p.fail("\\u{…} is no character")
		}
		return r
	}
	r := p.hex(4)
	if r >= surrogateMin && r <= surrogateMax {
		if p.take(`\u`) {
			if low := p.hex(4); r < 0xDC00 && low >= 0xDC00 && low <= surrogateMax {
				return 0x10000 + (r-surrogateMin)<<10 + (low - 0xDC00)
			}
		}
		p.fail("half of a surrogate pair is no character")
	}
	return r
}
