package jinja

import (
	"slices"
	"strings"
)

const (
	maxNest  = 200  // blocks, brackets and calls within each other
	maxChain = 2000 // operators, filters and subscripts in a row
)

// parser makes a tree of tokens. It panics with a *SyntaxError.
type parser struct {
	tokens  []token
	pos     int
	nest    int
	loops   int            // loops around, in the same macro
	macros  []*macroDef    // the macros around, innermost last
	unknown []*SyntaxError // filters and tests that nobody knows, where the template always comes to them
}

// parse reads a template. As in Python, a filter or test that nobody knows is an error here, but in a branch of a condition
// only where a rendering comes to it: real templates have such branches.
func parse(tokens []token) []stmt {
	p := &parser{tokens: tokens}
	body := p.body()
	if len(p.unknown) > 0 {
		panic(p.unknown[0])
	}
	return body
}

func (p *parser) cur() token  { return p.tokens[p.pos] }
func (p *parser) look() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if p.pos < len(p.tokens)-1 {
		p.pos++
	}
	return t
}

func (p *parser) fail(line int, format string, args ...any) {
	panic(syntaxError(line, format, args...))
}

// deeper counts a level; p.nest-- leaves it.
func (p *parser) deeper() {
	if p.nest++; p.nest > maxNest {
		p.fail(p.cur().line, "blocks or brackets nest deeper than %d", maxNest)
	}
}

// chain counts what is evaluated one within the other without brackets.
func (p *parser) chain(n int) {
	if n > maxChain {
		p.fail(p.cur().line, "an expression has more than %d operators in a row", maxChain)
	}
}

func (p *parser) expect(k kind) token {
	t := p.cur()
	if t.kind != k {
		p.fail(t.line, "expected '%s', found %s", k, t)
	}
	return p.next()
}

func (p *parser) expectName(name string) token {
	t := p.cur()
	if !t.is(name) {
		p.fail(t.line, "expected '%s', found %s", name, t)
	}
	return p.next()
}

func (p *parser) skip(k kind) bool {
	if p.cur().kind != k {
		return false
	}
	p.next()
	return true
}

func (p *parser) skipName(name string) bool {
	if !p.cur().is(name) {
		return false
	}
	p.next()
	return true
}

// body reads statements up to a tag of one of the names, which stays.
func (p *parser) body(ends ...string) []stmt {
	p.deeper()
	defer func() { p.nest-- }()
	out := []stmt{}
	for {
		switch t := p.cur(); t.kind {
		case kindEOF:
			if len(ends) > 0 {
				p.fail(t.line, "the template ends where '%s' is missing", strings.Join(ends, "' or '"))
			}
			return out
		case kindData:
			p.next()
			out = append(out, &textStmt{t.text})
		case kindVariableBegin:
			p.next()
			e := p.tuple(p.expression)
			p.expect(kindVariableEnd)
			out = append(out, &outputStmt{e, t.line})
		default: // a block: the lexer makes nothing else between tags
			p.next()
			if t := p.cur(); t.kind == kindName && slices.Contains(ends, t.text) {
				return out
			}
			out = append(out, p.statement(ends))
			p.expect(kindBlockEnd)
		}
	}
}

// block reads the end of a tag and the statements behind it, and the name of the tag that ends them.
func (p *parser) block(ends ...string) ([]stmt, token) {
	p.skip(":")
	p.expect(kindBlockEnd)
	b := p.body(ends...)
	return b, p.next()
}

// branch reads a block that a rendering may not come to.
func (p *parser) branch(ends ...string) ([]stmt, token) {
	known := len(p.unknown)
	b, end := p.block(ends...)
	p.unknown = p.unknown[:known]
	return b, end
}

// refusedTags are Jinja's tags that chat templates do not use.
var refusedTags = words("autoescape block debug do extends from import include pluralize print trans with")

func (p *parser) statement(ends []string) stmt {
	t := p.expect(kindName)
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifElse(t.line)
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.call(t.line)
	case "filter":
		filters := []*filterExpr{p.filter(nil)}
		filters = append(filters, p.filters()...)
		body, _ := p.block("endfilter")
		return &filterStmt{filters, body}
	case "generation": // marks the assistant's text for training; its body is that of a call block
		defer func(loops int) { p.loops = loops }(p.loops)
		p.loops = 0
		body, _ := p.block("endgeneration")
		return &generationStmt{body}
	case "break", "continue":
		switch {
		case p.loops == 0:
			p.fail(t.line, "'%s' outside a loop", t.text)
		case t.text == "break":
			return &breakStmt{}
		}
		return &continueStmt{}
	}
	switch {
	case refusedTags[t.text]:
		p.fail(t.line, "the tag '%s' is not supported", t.text)
	case len(ends) > 0:
		p.fail(t.line, "unknown tag '%s' where '%s' is missing", t.text, strings.Join(ends, "' or '"))
	}
	p.fail(t.line, "unknown tag '%s'", t.text)
	return nil
}

func (p *parser) forLoop(line int) stmt {
	s := &forStmt{line: line}
	p.loops++ // the target can't be called loop either
	s.target = p.target("in")
	p.loops--
	p.expectName("in")
	s.iter = p.tuple(p.or, "recursive")
	if p.skipName("if") {
		s.test = p.expression()
	}
	if p.cur().is("recursive") {
		p.fail(line, "recursive loops are not supported")
	}
	var end token
	p.loops++
	s.body, end = p.block("endfor", "else")
	p.loops--
	if end.text == "else" {
		s.otherwise, _ = p.block("endfor")
	}
	return s
}

func (p *parser) ifElse(line int) stmt {
	s := &ifStmt{}
	for {
		s.lines = append(s.lines, line)
		s.tests = append(s.tests, p.tuple(p.or))
		body, end := p.branch("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		line = end.line
		switch end.text {
		case "else":
			body, _ = p.branch("endif")
			s.bodies = append(s.bodies, body)
			return s
		case "endif":
			return s
		}
	}
}

func (p *parser) set(line int) stmt {
	t := p.setTarget()
	if p.skip("=") {
		return &setStmt{t, p.tuple(p.expression), line}
	}
	filters := p.filters()
	body, _ := p.block("endset")
	return &setBlockStmt{t, filters, body, line}
}

// setTarget is what {% set %} can assign to: the fields of a namespace too.
func (p *parser) setTarget() target {
	if p.look().kind != "." {
		return p.target("")
	}
	t := p.expect(kindName)
	p.next()
	p.mention(t.text)
	return &fieldTarget{t.text, p.expect(kindName).text}
}

// target reads what can be assigned to, up to the name end.
func (p *parser) target(end string) target {
	line := p.cur().line
	return p.assignable(p.tuple(p.primary, end), line)
}

func (p *parser) assignable(e expr, line int) target {
	switch e := e.(type) {
	case *nameExpr:
		if e.name == "loop" && p.loops > 0 {
			p.fail(line, "can't assign to the special variable 'loop'")
		}
		return &nameTarget{e.name}
	case *tupleExpr:
		t := &tupleTarget{}
		for _, item := range e.items {
			t.items = append(t.items, p.assignable(item, line))
		}
		return t
	}
	p.fail(line, "can't assign to this expression: want a name or names")
	return nil
}

// reserved names can't be those of macros or parameters.
var reserved = words("true false none True False None caller kwargs varargs")

// signature reads the parameters of a macro.
func (p *parser) signature(m *macroDef) {
	p.expect("(")
	for p.cur().kind != ")" {
		if len(m.params) > 0 {
			p.expect(",")
		}
		t := p.expect(kindName)
		if slices.Contains(m.params, t.text) || reserved[t.text] {
			p.fail(t.line, "the parameter '%s' can't be used here", t.text)
		}
		if p.skip("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.fail(t.line, "the parameter '%s' has no default, but one in front of it has", t.text)
		}
		m.params = append(m.params, t.text)
	}
	p.next()
}

// macroBody reads the body of a macro.
func (p *parser) macroBody(m *macroDef, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.body, _ = p.block(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
}

// mention notes the use of a special name for all macros around.
func (p *parser) mention(name string) {
	for _, m := range p.macros {
		m.caller = m.caller || name == "caller"
		m.kwargs = m.kwargs || name == "kwargs"
		m.varargs = m.varargs || name == "varargs"
	}
}

func (p *parser) macro(line int) stmt {
	m := &macroDef{name: p.expect(kindName).text}
	if reserved[m.name] {
		p.fail(line, "a macro can't have the name '%s'", m.name)
	}
	p.signature(m)
	p.macroBody(m, "endmacro")
	return &macroStmt{m}
}

func (p *parser) call(line int) stmt {
	m := &macroDef{}
	if p.cur().kind == "(" {
		p.signature(m)
	}
	c, ok := p.expression().(*callExpr)
	if !ok {
		p.fail(line, "expected a call behind 'call'")
	}
	p.macroBody(m, "endcall")
	return &callStmt{m, c}
}

// filters reads | name(…) as often as it comes.
func (p *parser) filters() []*filterExpr {
	var out []*filterExpr
	for p.skip("|") {
		out = append(out, p.filter(nil))
	}
	return out
}
