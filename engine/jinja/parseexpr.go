package jinja

import "slices"

// reserved names mean something to the language.
var reserved = map[string]bool{"true": true, "false": true, "none": true, "True": true, "False": true, "None": true}

func (p *parser) noCond() expr { return p.or() }

// tuple reads expressions with commas between; one alone is itself.
func (p *parser) tuple(cond bool) expr {
	if cond {
		return p.tupleOf(false, p.expression)
	}
	return p.tupleOf(false, p.noCond)
}

// tupleOf reads what one reads, with commas between, up to an end or one of the names. In brackets there may be nothing.
func (p *parser) tupleOf(brackets bool, one func() expr, ends ...string) expr {
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		t := p.cur()
		if t.kind == kindVariableEnd || t.kind == kindBlockEnd || t.kind == ")" || t.kind == kindName && slices.Contains(ends, t.text) {
			break
		}
		items = append(items, one())
		if p.cur().kind != "," {
			break
		}
		comma = true
	}
	if !comma {
		if len(items) == 1 {
			return items[0]
		}
		if !brackets {
			p.fail(p.cur().line, "expected an expression, found %s", p.cur())
		}
	}
	return &tupleExpr{items}
}

func (p *parser) expression() expr {
	p.deeper()
	defer func() { p.nest-- }()
	e := p.or()
	for n := 0; p.skipName("if"); n++ {
		p.chain(n)
		c := &condExpr{then: e, test: p.or()}
		if p.skipName("else") {
			c.otherwise = p.expression()
		}
		e = c
	}
	return e
}

// chain counts what is evaluated one within the other without brackets.
func (p *parser) chain(n int) {
	if n > maxChain {
		p.fail(p.cur().line, "an expression has more than %d operators in a row", maxChain)
	}
}

func (p *parser) or() expr {
	e := p.and()
	for n := 0; p.skipName("or"); n++ {
		p.chain(n)
		e = &orExpr{e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for n := 0; p.skipName("and"); n++ {
		p.chain(n)
		e = &andExpr{e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if !p.skipName("not") {
		return p.compare()
	}
	p.deeper()
	defer func() { p.nest-- }()
	return &notExpr{p.not()}
}

func (p *parser) compare() expr {
	line := p.cur().line
	first := p.sum()
	c := &compareExpr{first: first, line: line}
	for {
		t := p.cur()
		op := ""
		switch {
		case t.kind == "==" || t.kind == "!=" || t.kind == "<" || t.kind == "<=" || t.kind == ">" || t.kind == ">=":
			op = string(t.kind)
		case t.is("in"):
			op = "in"
		case t.is("not") && p.look().is("in"):
			p.next()
			op = "not in"
		default:
			if len(c.ops) == 0 {
				return first
			}
			return c
		}
		p.next()
		p.chain(len(c.ops))
		c.ops = append(c.ops, op)
		c.with = append(c.with, p.sum())
	}
}

// binary reads operators of one rank, which bind to the left.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	e := operand()
	for n := 0; slices.Contains(ops, string(p.cur().kind)); n++ {
		p.chain(n)
		t := p.next()
		e = &binaryExpr{op: string(t.kind), left: e, right: operand(), line: t.line}
	}
	return e
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	first := p.product()
	if p.cur().kind != "~" {
		return first
	}
	c := &concatExpr{items: []expr{first}}
	for p.skip("~") {
		c.items = append(c.items, p.product())
	}
	return c
}

func (p *parser) product() expr {
	return p.binary(func() expr { return p.binary(func() expr { return p.unary(true) }, "**") }, "*", "/", "//", "%")
}

func (p *parser) unary(filters bool) expr {
	p.deeper()
	defer func() { p.nest-- }()
	var e expr
	if t := p.cur(); t.kind == "-" || t.kind == "+" {
		p.next()
		e = &unaryExpr{op: string(t.kind), of: p.unary(false), line: t.line}
	} else {
		e = p.primary()
	}
	n := 0
	for ; ; n++ {
		p.chain(n)
		switch p.cur().kind {
		case ".", "[":
			e = p.subscript(e)
			continue
		case "(":
			e = p.callOf(e)
			continue
		}
		break
	}
	if !filters {
		return e
	}
	for ; ; n++ {
		p.chain(n)
		t := p.cur()
		switch {
		case t.kind == "|":
			p.next()
			e = p.filter(e)
		case t.is("is"):
			e = p.test(e)
		case t.kind == "(":
			e = p.callOf(e)
		default:
			return e
		}
	}
}
