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
	tokens []token
	pos    int
	nest   int
	loops  int        // loops around, in the same macro
	macros []*mention // the macros around, innermost last
}

// mention collects which special names the body of a macro mentions.
type mention struct{ names map[string]bool }

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
			e := p.tuple(true)
			p.expect(kindVariableEnd)
			out = append(out, &outputStmt{e, t.line})
		default: // a block: the lexer makes nothing else between tags
			p.next()
			if t := p.cur(); t.kind == kindName && slices.Contains(ends, t.text) {
				return out
			}
			if s := p.statement(ends); s != nil {
				out = append(out, s)
			}
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

// refusedTags are Jinja's tags that a chat template has no use for here.
var refusedTags = map[string]string{
	"include": "reads other templates", "import": "reads other templates", "from": "reads other templates",
	"extends": "reads other templates", "block": "is for templates that extend others",
	"autoescape": "makes HTML", "trans": "translates", "pluralize": "translates", "debug": "prints the server's state", "do": "is no part of chat templates",
}

func (p *parser) statement(ends []string) stmt {
	t := p.cur()
	if t.kind != kindName {
		p.fail(t.line, "expected the name of a tag, found %s", t)
	}
	p.next()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifElse(t.line)
	case "set":
		return p.set(t.line)
	case "with":
		return p.with(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.call(t.line)
	case "filter":
		return p.filterBlock()
	case "print":
		return p.print(t.line)
	case "generation":
		return p.generation()
	case "break", "continue":
		if p.loops == 0 {
			p.fail(t.line, "'%s' outside a loop", t.text)
		}
		if t.text == "break" {
			return &breakStmt{}
		}
		return &continueStmt{}
	}
	if why, ok := refusedTags[t.text]; ok {
		p.fail(t.line, "the tag '%s' %s and is not supported", t.text, why)
	}
	if len(ends) > 0 {
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
	s.iter = p.tupleOf(false, p.noCond, "recursive")
	if p.skipName("if") {
		s.test = p.expression()
	}
	s.recursive = p.skipName("recursive")
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
		s.tests = append(s.tests, p.tupleOf(false, p.noCond))
		body, end := p.block("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		line = end.line
		switch end.text {
		case "else":
			body, _ = p.block("endif")
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
		return &setStmt{t, p.tuple(true), line}
	}
	filters := p.filters(false)
	body, _ := p.block("endset")
	return &setBlockStmt{t, filters, body, line}
}

// setTarget is what {% set %} can assign to: the fields of a namespace too.
func (p *parser) setTarget() target {
	if p.look().kind == "." {
		t := p.expect(kindName)
		p.next()
		p.mention(t.text)
		return &fieldTarget{t.text, p.expect(kindName).text}
	}
	return p.target("")
}

// target reads what can be assigned to, up to the name end.
func (p *parser) target(end string) target {
	line := p.cur().line
	return p.assignable(p.tupleOf(false, p.primary, end), line)
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

func (p *parser) with(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != kindBlockEnd {
		if len(s.targets) > 0 {
			p.expect(",")
		}
		s.targets = append(s.targets, p.target(""))
		p.expect("=")
		s.values = append(s.values, p.expression())
	}
	s.body, _ = p.block("endwith")
	return s
}

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

// macroBody reads the body of a macro, and notes which special names it mentions.
func (p *parser) macroBody(m *macroDef, line int, end string) {
	loops, seen := p.loops, &mention{map[string]bool{}}
	p.loops = 0
	p.macros = append(p.macros, seen)
	m.body, _ = p.block(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
	m.explicitCaller = slices.Contains(m.params, "caller")
	m.caller = seen.names["caller"]
	m.kwargs = seen.names["kwargs"] && !slices.Contains(m.params, "kwargs")
	m.varargs = seen.names["varargs"] && !slices.Contains(m.params, "varargs")
	if m.caller && m.explicitCaller && slices.Index(m.params, "caller") < len(m.params)-len(m.defaults) {
		p.fail(line, "the parameter 'caller' must have a default")
	}
	for name := range seen.names { // a macro within a macro: the outer one mentions the name as well
		p.mention(name)
	}
}

func (p *parser) macro(line int) stmt {
	m := &macroDef{name: p.expect(kindName).text}
	if reserved[m.name] {
		p.fail(line, "a macro can't have the name '%s'", m.name)
	}
	p.signature(m)
	p.macroBody(m, line, "endmacro")
	return &macroStmt{m, line}
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
	p.macroBody(m, line, "endcall")
	return &callStmt{m, c}
}

// generation marks the assistant's text for training; its body is that of a call block.
func (p *parser) generation() stmt {
	loops := p.loops
	p.loops = 0
	body, _ := p.block("endgeneration")
	p.loops = loops
	return &generationStmt{body}
}

func (p *parser) filterBlock() stmt {
	filters := p.filters(true)
	body, _ := p.block("endfilter")
	return &filterStmt{filters, body}
}

func (p *parser) print(line int) stmt {
	s := &outputStmt{line: line}
	all := &concatExpr{}
	for p.cur().kind != kindBlockEnd {
		if len(all.items) > 0 {
			p.expect(",")
		}
		e := p.expression()
		all.items = append(all.items, e)
	}
	s.of = all
	return s
}

// filters reads | name(…) as often as it comes; with inline, the first | is left out.
func (p *parser) filters(inline bool) []*filterExpr {
	var out []*filterExpr
	for inline || p.skip("|") {
		inline = false
		out = append(out, p.filter(nil))
	}
	return out
}

// mention notes the use of a name for the macro around.
func (p *parser) mention(name string) {
	if len(p.macros) > 0 && (name == "caller" || name == "kwargs" || name == "varargs") {
		p.macros[len(p.macros)-1].names[name] = true
	}
}
