package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

func (p *parser) primary() expr {
	t := p.cur()
	switch t.kind {
	case kindName:
		p.next()
		return p.name(t)
	case kindString:
		var b strings.Builder
		for p.cur().kind == kindString {
			b.WriteString(p.next().text)
		}
		return &constant{b.String()}
	case kindInteger:
		p.next()
		return &constant{integer(t.text)}
	case kindFloat:
		p.next()
		f, _ := strconv.ParseFloat(t.text, 64) // out of range is infinity, as in Python
		return &constant{f}
	case "(":
		p.next()
		p.deeper()
		e := p.tupleOf(true, p.expression)
		p.nest--
		p.expect(")")
		return e
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	p.fail(t.line, "expected an expression, found %s", t)
	return nil
}

// integer is the value of a whole number's literal.
func integer(text string) any {
	b, _ := new(big.Int).SetString(text, 0) // the lexer lets only such through
	if b.IsInt64() {
		return b.Int64()
	}
	return b
}

func (p *parser) name(t token) expr {
	switch t.text {
	case "true", "True":
		return &constant{true}
	case "false", "False":
		return &constant{false}
	case "none", "None":
		return &constant{nil}
	}
	p.mention(t.text)
	return &nameExpr{t.text, t.line}
}

func (p *parser) list() expr {
	p.next()
	l := &listExpr{}
	for p.cur().kind != "]" {
		if len(l.items) > 0 {
			p.expect(",")
			if p.cur().kind == "]" {
				break
			}
		}
		l.items = append(l.items, p.expression())
	}
	p.next()
	return l
}

func (p *parser) dict() expr {
	d := &dictExpr{line: p.next().line}
	for p.cur().kind != "}" {
		if len(d.keys) > 0 {
			p.expect(",")
			if p.cur().kind == "}" {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expect(":")
		d.values = append(d.values, p.expression())
	}
	p.next()
	return d
}

func (p *parser) subscript(of expr) expr {
	t := p.next()
	if t.kind == "." {
		switch attr := p.next(); attr.kind {
		case kindName:
			return &attrExpr{of, attr.text, t.line}
		case kindInteger:
			return &itemExpr{of, &constant{integer(attr.text)}, t.line}
		default:
			p.fail(attr.line, "expected a name or number behind '.', found %s", attr)
		}
	}
	var items []expr
	for p.cur().kind != "]" {
		if len(items) > 0 {
			p.expect(",")
		}
		items = append(items, p.subscribed())
	}
	p.next()
	switch {
	case len(items) == 1:
		return &itemExpr{of, items[0], t.line}
	default:
		return &itemExpr{of, &tupleExpr{items}, t.line}
	}
}

// subscribed is an index or a slice.
func (p *parser) subscribed() expr {
	s := &sliceExpr{}
	if p.cur().kind != ":" {
		e := p.expression()
		if p.cur().kind != ":" {
			return e
		}
		s.from = e
	}
	p.next()
	if k := p.cur().kind; k != ":" && k != "]" && k != "," {
		s.to = p.expression()
	}
	if p.skip(":") {
		if k := p.cur().kind; k != "]" && k != "," {
			s.step = p.expression()
		}
	}
	return s
}

func (p *parser) callOf(of expr) expr {
	line := p.cur().line
	return &callExpr{of, p.callArgs(), line}
}

func (p *parser) callArgs() callArgs {
	line := p.expect("(").line
	var c callArgs
	need := false
	wrong := func(is bool) {
		if is {
			p.fail(line, "the arguments of a call are in the wrong order")
		}
	}
	for p.cur().kind != ")" {
		if need {
			p.expect(",")
			if p.cur().kind == ")" {
				break
			}
		}
		need = true
		switch t := p.cur(); {
		case t.kind == "*":
			wrong(c.star != nil || c.stars != nil)
			p.next()
			c.star = p.expression()
		case t.kind == "**":
			wrong(c.stars != nil)
			p.next()
			c.stars = p.expression()
		case t.kind == kindName && p.look().kind == "=":
			wrong(c.stars != nil)
			if slices.Contains(c.names, t.text) {
				p.fail(line, "the keyword argument '%s' is there twice", t.text)
			}
			p.next()
			p.next()
			c.names = append(c.names, t.text)
			c.values = append(c.values, p.expression())
		default:
			wrong(c.star != nil || c.stars != nil || len(c.names) > 0)
			c.args = append(c.args, p.expression())
		}
	}
	p.next()
	return c
}

// dotted reads the name of a filter or test.
func (p *parser) dotted() token {
	t := p.expect(kindName)
	for p.skip(".") {
		t.text += "." + p.expect(kindName).text
	}
	return t
}

func (p *parser) filter(of expr) *filterExpr {
	t := p.dotted()
	f := &filterExpr{of: of, name: t.text, run: filters[t.text], line: t.line}
	if f.run == nil {
		f.run = func(r *run, _ any, _ args) any { return r.unsupported("filter", t.text) }
	}
	if p.cur().kind == "(" {
		f.args = p.callArgs()
	}
	return f
}

// unsupported fails where the template uses something that is not known here.
func (r *run) unsupported(what, name string) any {
	r.fail("the %s '%s' is not supported", what, name)
	return nil
}

func (p *parser) test(of expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	t := p.dotted()
	e := &testExpr{of: of, run: tests[t.text], line: line}
	if e.run == nil {
		e.run = func(r *run, _ any, _ args) bool { return r.unsupported("test", t.text) == nil }
	}
	switch c := p.cur(); {
	case c.kind == "(":
		e.args = p.callArgs()
	case c.is("is"):
		p.fail(c.line, "tests can't be chained with 'is'")
	case c.kind == kindName && !c.is("else") && !c.is("or") && !c.is("and"),
		c.kind == kindString, c.kind == kindInteger, c.kind == kindFloat, c.kind == "[", c.kind == "{":
		arg := p.primary()
		for k := p.cur().kind; k == "." || k == "[" || k == "("; k = p.cur().kind {
			if k == "(" {
				arg = p.callOf(arg)
			} else {
				arg = p.subscript(arg)
			}
		}
		e.args.args = []expr{arg}
	}
	if negated {
		return &notExpr{e}
	}
	return e
}
