package constrain

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GBNF returns the form of a grammar in llama.cpp's notation, which vLLM's guided_grammar takes too:
//
//	root ::= "a" [0-9a-f]{1,4} ( item "," )* item? | .   # a comment
//
// A text begins with the rule root. The escapes are \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. A rule
// continues on the next line within parentheses, after | and if the next line begins no other rule. Tokens by name or
// number (<…>), and grammars that exceed the budget, fail with a [*FormError].
func GBNF(ctx context.Context, b *Budget, source string) (Form, error) {
	if len(source) > maxSource {
		return Form{}, formError("the grammar has %d bytes: want at most %d", len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		return Form{}, formError("the grammar is not valid UTF-8")
	}
	m := newMeter(ctx, b)
	m.spend(len(source), len(source)*exprSize/4)
	if m.err != nil {
		return Form{}, m.err
	}
	p := &grammarParser{scanner: scanner{text: source}, rules: map[string]*rule{}, defined: map[string]bool{}}
	for p.space(); p.err == nil && p.at < len(p.text); p.space() {
		p.definition()
	}
	if p.err != nil {
		return Form{}, p.err
	}
	for _, name := range p.order {
		if !p.defined[name] {
			return Form{}, formError("the grammar uses the rule %s, which it does not have", clip(name))
		}
	}
	root := p.rules["root"]
	if root == nil {
		return Form{}, formError("the grammar has no rule called root: name the one with which a text begins so, as in root ::= \"yes\" | \"no\"")
	}
	return Form{root}, nil
}

type grammarParser struct {
	scanner
	rules   map[string]*rule
	defined map[string]bool
	order   []string
}

type scanner struct {
	text  string
	at    int
	depth int
	err   error
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(text string) bool {
	if strings.HasPrefix(s.text[s.at:], text) {
		s.at += len(text)
		return true
	}
	return false
}

func (p *grammarParser) fail(format string, args ...any) {
	if p.err == nil {
		line := 1 + strings.Count(p.text[:min(p.at, len(p.text))], "\n")
		p.err = formError("the grammar, line "+strconv.Itoa(line)+": "+format, args...)
	}
	p.at = len(p.text)
}

func (p *grammarParser) space() {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '#':
			if n := strings.IndexByte(p.text[p.at:], '\n'); n >= 0 {
				p.at += n
			} else {
				p.at = len(p.text)
			}
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *grammarParser) name() string {
	from := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			p.at++
			continue
		}
		break
	}
	return p.text[from:p.at]
}

func (p *grammarParser) beginsRule() bool {
	q := *p
	if q.name() == "" {
		return false
	}
	q.space()
	return q.take("::=")
}

func (p *grammarParser) rule(name string) *rule {
	r := p.rules[name]
	if r == nil {
		r = &rule{name: name}
		p.rules[name] = r
		p.order = append(p.order, name)
	}
	return r
}

func (p *grammarParser) definition() {
	name := p.name()
	p.space()
	if name == "" || !p.take("::=") {
		p.fail("want a rule like name ::= \"text\"")
		return
	}
	if p.defined[name] {
		p.fail("the rule %s is there twice", clip(name))
		return
	}
	p.defined[name] = true
	p.rule(name).body = p.alternatives()
}

func (p *grammarParser) alternatives() expr {
	if p.depth++; p.depth > maxDepth {
		p.fail("parentheses are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	c := choice{p.sequence()}
	for p.space(); p.take("|"); p.space() {
		c = append(c, p.sequence())
	}
	if len(c) == 1 {
		return c[0]
	}
	return c
}

func (p *grammarParser) sequence() expr {
	s := sequence{}
	for p.err == nil {
		p.space()
		var x expr
		switch c := p.peek(); {
		case c == 0 || c == '|' || c == ')' || p.beginsRule():
			return s
		case c == '"':
			x = p.quoted()
		case c == '[':
			x = p.class()
		case c == '.':
			p.at++
			x = anyChar()
		case c == '(':
			p.at++
			x = p.alternatives()
			if p.space(); !p.take(")") {
				p.fail("a ) is missing")
			}
		case c == '<' || c == '!':
			p.fail("tokens (<…>) are not supported: write their text")
		default:
			name := p.name()
			if name == "" {
				p.fail("%s can't stand here: want \"text\", [class], (group), a rule's name or .", clip(p.text[p.at:min(len(p.text), p.at+8)]))
				return s
			}
			x = p.rule(name)
		}
		s = append(s, p.repeated(x))
	}
	return s
}

func (p *grammarParser) repeated(x expr) expr {
	for p.err == nil {
		switch p.peek() {
		case '*':
			x = repeat{x, 0, -1}
		case '+':
			x = repeat{x, 1, -1}
		case '?':
			x = opt(x)
		case '{':
			x = p.counted(x)
			continue
		default:
			return x
		}
		p.at++
	}
	return x
}

func (p *grammarParser) counted(x expr) expr {
	end := strings.IndexByte(p.text[p.at:], '}')
	if end < 0 {
		p.fail("a } is missing")
		return x
	}
	from, to, ranged := strings.Cut(p.text[p.at+1:p.at+end], ",")
	p.at += end + 1
	number := func(text string, empty int) int {
		text = strings.TrimSpace(text)
		if text == "" {
			return empty
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			p.fail("a repetition of %s: want {n}, {n,} or {n,m}", clip(text))
		}
		return min(n, 1<<30) // loops count in 32 bits
	}
	r := repeat{x: x, min: number(from, 0)}
	r.max = r.min
	if ranged {
		if r.max = number(to, -1); r.max >= 0 && r.max < r.min {
			p.fail("a repetition of {%d,%d}: the second number is smaller", r.min, r.max)
		}
	}
	return r
}

func (p *grammarParser) quoted() expr {
	var b strings.Builder
	for p.at++; p.err == nil; {
		if p.peek() == '"' {
			p.at++
			return literal(b.String())
		}
		b.WriteRune(p.char())
	}
	return nil
}

func (p *grammarParser) class() expr {
	p.at++
	not := p.take("^")
	c := class{}
	for p.err == nil && p.peek() != ']' {
		s := span{lo: p.char()}
		s.hi = s.lo
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			if s.hi = p.char(); s.hi < s.lo {
				p.fail("a class has a range that goes backwards")
			}
		}
		c = append(c, s)
	}
	p.take("]")
	if not {
		return c.not()
	}
	return c
}

func (p *grammarParser) char() rune {
	if p.at >= len(p.text) || p.text[p.at] == '\n' {
		p.fail("a text or class does not end in its line")
		return 0
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	if r != '\\' {
		return r
	}
	c := p.peek()
	p.at++
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case '\\', '"', '[', ']', '-', '^':
		return rune(c)
	case 'x':
		return p.hex(2)
	case 'u':
		return p.hex(4)
	case 'U':
		return p.hex(8)
	}
	p.fail("the escape of %q is unknown", c)
	return 0
}

func (p *grammarParser) hex(digits int) rune {
	text := p.text[min(p.at, len(p.text)):min(p.at+digits, len(p.text))]
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) != digits || !utf8.ValidRune(rune(n)) || n > utf8.MaxRune {
		p.fail("an escape wants %d hexadecimal digits that name a character", digits)
		return 0
	}
	p.at += digits
	return rune(n)
}
