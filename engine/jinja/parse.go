package jinja

import (
	"slices"
	"strings"
)

const maxNest = 200 // blocks, brackets and calls

type (
	stmt func(r *run, s *scope) signal

	block []stmt

	// A target is the left side of an assignment: a name, a field of a namespace, or targets for the items of a
	// sequence.
	target struct {
		name, field string
		items       []target
	}
)

// parser converts tokens to statements. It panics with a *Error.
type parser struct {
	tokens  []token
	pos     int
	nest    int
	leave   func()
	loops   int         // enclosing, in the same macro
	macros  []*macroDef // innermost last
	unknown []*Error    // filters and tests that the template always reaches
}

// parse fails for an unknown filter or test, as Python does, except in a branch of a condition.
func parse(tokens []token) block {
	p := &parser{tokens: tokens}
	p.leave = func() { p.nest-- }
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
	panic(errorf(line, format, args...))
}

// deeper enters a level; the returned function leaves it.
func (p *parser) deeper() func() {
	if p.nest++; p.nest > maxNest {
		p.fail(p.cur().line, "blocks or brackets nest deeper than %d", maxNest)
	}
	return p.leave
}

// expect reads a token of kind k, or the name k.
func (p *parser) expect(k kind) token {
	t := p.cur()
	if !t.is(k) {
		p.fail(t.line, "expected %s, found %s", k, t)
	}
	return p.next()
}

func (p *parser) skip(k kind) bool {
	is := p.cur().is(k)
	if is {
		p.next()
	}
	return is
}

// body reads statements up to a tag with one of the names, which it does not read.
func (p *parser) body(ends ...string) block {
	defer p.deeper()()
	out := block{}
	for {
		switch t := p.next(); t.kind {
		case kindEOF:
			if len(ends) > 0 {
				p.fail(t.line, "the template ends where '%s' is missing", strings.Join(ends, "' or '"))
			}
			return out
		case kindData:
			out = append(out, func(r *run, _ *scope) signal { r.write(t.text); return done })
		case kindVariableBegin:
			e := p.tuple(false, p.expression)
			p.expect(kindVariableEnd)
			out = append(out, func(r *run, s *scope) signal { r.at(t.line); r.write(r.str(e(r, s))); return done })
		default: // a tag
			if t := p.cur(); t.kind == kindName && slices.Contains(ends, t.text) {
				return out
			}
			out = append(out, p.statement(ends))
			p.expect(kindBlockEnd)
		}
	}
}

// block reads the end of a tag, the statements after it, and the name of the closing tag.
func (p *parser) block(ends ...string) (block, token) {
	p.skip(":")
	p.expect(kindBlockEnd)
	b := p.body(ends...)
	return b, p.next()
}

// branch reads a block that a rendering may not reach.
func (p *parser) branch(ends ...string) (block, token) {
	known := len(p.unknown)
	b, end := p.block(ends...)
	p.unknown = p.unknown[:known]
	return b, end
}

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
		m := &macroDef{name: p.expect(kindName).text, mentions: map[string]bool{}}
		p.signature(m)
		p.macroBody(m, "endmacro")
		return func(_ *run, s *scope) signal { s.set(m.name, &macro{m, s}); return done }
	case "call":
		return p.call(t.line)
	case "filter":
		return p.filtered(append([]filterCall{p.filter()}, p.filters()...), "endfilter")
	case "generation": // marks the assistant's text for training; as in Python, break and continue can't leave it
		defer func(loops int) { p.loops = loops }(p.loops)
		p.loops = 0
		return p.filtered(nil, "endgeneration")
	case "break", "continue":
		if p.loops == 0 {
			p.fail(t.line, "'%s' outside a loop", t.text)
		}
		sig := map[string]signal{"break": breaks, "continue": continues}[t.text]
		return func(*run, *scope) signal { return sig }
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
	f := &forLoop{line: line}
	p.loops++ // the target can't be called loop either
	f.target = p.target()
	p.loops--
	p.expect("in")
	f.over = p.tuple(false, p.or, "recursive")
	if p.skip("if") {
		f.test = p.expression()
	}
	if p.skip("recursive") {
		p.fail(line, "recursive loops are not supported")
	}
	var end token
	p.loops++
	f.body, end = p.block("endfor", "else")
	p.loops--
	if end.text == "else" {
		f.otherwise, _ = p.block("endfor")
	}
	return f.run
}

func (p *parser) ifElse(line int) stmt {
	test := p.tuple(false, p.or)
	then, end := p.branch("elif", "else", "endif")
	otherwise := block{}
	switch known := len(p.unknown); end.text {
	case "elif":
		otherwise = block{p.ifElse(end.line)}
		p.unknown = p.unknown[:known]
	case "else":
		otherwise, _ = p.branch("endif")
	}
	return func(r *run, s *scope) signal {
		r.at(line)
		if truth(test(r, s)) {
			return then.run(r, s)
		}
		return otherwise.run(r, s)
	}
}

func (p *parser) set(line int) stmt {
	var t target
	if p.look().kind == "." {
		t.name = p.expect(kindName).text
		p.mention(t.name)
		p.next()
		t.field = p.expect(kindName).text
	} else {
		t = p.target()
	}
	if p.skip("=") {
		value := p.tuple(false, p.expression)
		return func(r *run, s *scope) signal { r.at(line); t.assign(r, value(r, s), s); return done }
	}
	filters := p.filters()
	body, _ := p.block("endset")
	return func(r *run, s *scope) signal {
		text, sig := r.filtered(filters, body, s)
		if sig == done {
			r.at(line)
			t.assign(r, text, s)
		}
		return sig
	}
}

func (p *parser) filtered(filters []filterCall, end string) stmt {
	body, _ := p.block(end)
	return func(r *run, s *scope) signal {
		text, sig := r.filtered(filters, body, s)
		if sig == done {
			r.write(r.text("a filter block", text))
		}
		return sig
	}
}

func (p *parser) filters() (all []filterCall) {
	for p.skip("|") {
		all = append(all, p.filter())
	}
	return all
}

func (p *parser) target() target {
	var t target
	for comma := false; ; comma = true {
		name := p.cur()
		_, reserved := constants[name.text]
		switch {
		case p.skip("("):
			t.items = append(t.items, p.target())
			p.expect(")")
		case reserved || name.text == "loop" && p.loops > 0:
			p.fail(name.line, "can't assign to '%s'", name.text)
		default:
			t.items = append(t.items, target{name: p.expect(kindName).text})
		}
		switch {
		case p.skip(","):
		case comma:
			return t
		default:
			return t.items[0]
		}
	}
}

var specials = words("caller kwargs varargs")

func (p *parser) signature(m *macroDef) {
	p.expect("(")
	for p.cur().kind != ")" {
		if len(m.params) > 0 {
			p.expect(",")
		}
		t := p.expect(kindName)
		if slices.Contains(m.params, t.text) || specials[t.text] {
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

func (p *parser) macroBody(m *macroDef, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.body, _ = p.block(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
}

func (p *parser) mention(name string) {
	for _, m := range p.macros {
		if specials[name] {
			m.mentions[name] = true
		}
	}
}

func (p *parser) call(line int) stmt {
	m := &macroDef{mentions: map[string]bool{}}
	if p.cur().kind == "(" {
		p.signature(m)
	}
	of, arguments := p.name(p.expect(kindName)), p.callArgs()
	p.macroBody(m, "endcall")
	return func(r *run, s *scope) signal {
		f, a := of(r, s), arguments.eval(r, s)
		if slices.Contains(a.names, "caller") {
			r.fail("got multiple values for keyword argument 'caller'")
		}
		a.names, a.values = append(slices.Clip(a.names), "caller"), append(a.values, &macro{m, s})
		r.at(line)
		r.write(r.text("a call block", r.callValue(f, a)))
		return done
	}
}
