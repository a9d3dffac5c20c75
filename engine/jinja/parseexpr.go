package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple reads what one reads, with commas between, up to an end or one of the names; one alone is itself.
func (p *parser) tuple(one func() expr, ends ...string) expr {
	items, comma := p.tupleItems(one, ends...)
	switch {
	case comma:
		return &tupleExpr{items}
	case len(items) == 0:
		p.fail(p.cur().line, "expected an expression, found %s", p.cur())
	}
	return items[0]
}

func (p *parser) tupleItems(one func() expr, ends ...string) (items []expr, comma bool) {
	for {
		t := p.cur()
		if t.kind == kindVariableEnd || t.kind == kindBlockEnd || t.kind == ")" || t.kind == kindName && slices.Contains(ends, t.text) {
			return items, comma
		}
		if items = append(items, one()); !p.skip(",") {
			return items, comma
		}
		comma = true
	}
}

func (p *parser) expression() expr {
	p.deeper()
	defer func() { p.nest-- }()
	known := len(p.unknown)
	e := p.or()
	for n := 0; p.skipName("if"); n++ {
		p.chain(n)
		p.unknown = p.unknown[:known] // those of a branch
		c := &condExpr{then: e, test: p.or()}
		if p.skipName("else") {
			known := len(p.unknown)
			c.otherwise = p.expression()
			p.unknown = p.unknown[:known]
		}
		e = c
	}
	return e
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
	c := &compareExpr{line: p.cur().line}
	c.first = p.sum()
	for {
		t := p.cur()
		op := string(t.kind)
		switch {
		case slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
		case t.is("in"):
			op = "in"
		case t.is("not") && p.look().is("in"):
			p.next()
			op = "not in"
		case len(c.ops) == 0:
			return c.first
		default:
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
	return p.binary(func() expr {
		e := p.unary(true)
		if t := p.cur(); t.kind == "**" {
			p.fail(t.line, "the operator '**' is not supported")
		}
		return e
	}, "*", "/", "//", "%")
}

func (p *parser) unary(filters bool) expr {
	p.deeper()
	defer func() { p.nest-- }()
	var e expr
	if t := p.cur(); t.kind == "-" || t.kind == "+" {
		p.next()
		e = &signExpr{op: string(t.kind), of: p.unary(false), line: t.line}
	} else {
		e = p.primary()
	}
	e, n := p.subscripts(e)
	for ; filters; n++ {
		p.chain(n)
		switch {
		case p.skip("|"):
			e = p.filter(e)
		case p.cur().is("is"):
			e = p.test(e)
		default:
			return e
		}
	}
	return e
}

// subscripts reads attributes, elements and calls as often as they come.
func (p *parser) subscripts(e expr) (expr, int) {
	for n := 0; ; n++ {
		p.chain(n)
		switch p.cur().kind {
		case ".", "[":
			e = p.subscript(e)
		case "(":
			e = p.callOf(e)
		default:
			return e, n
		}
	}
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case kindName:
		return p.name(t)
	case kindString:
		text := t.text
		for p.cur().kind == kindString {
			text += p.next().text
		}
		return &constant{text}
	case kindInteger:
		return p.integer(t)
	case kindFloat:
		f, _ := strconv.ParseFloat(t.text, 64) // out of range is infinity, as in Python
		return &constant{f}
	case "(":
		p.deeper()
		items, comma := p.tupleItems(p.expression)
		p.nest--
		p.expect(")")
		if len(items) == 1 && !comma {
			return items[0]
		}
		return &tupleExpr{items}
	case "[":
		return &listExpr{p.items("]", p.expression)}
	case "{":
		d := &dictExpr{line: t.line}
		d.keys = p.items("}", func() expr {
			key := p.expression()
			p.expect(":")
			d.values = append(d.values, p.expression())
			return key
		})
		return d
	}
	p.fail(t.line, "expected an expression, found %s", t)
	return nil
}

// items reads what one reads, with commas between and perhaps behind, and the bracket at the end.
func (p *parser) items(end kind, one func() expr) (all []expr) {
	for !p.skip(end) {
		if all = append(all, one()); p.cur().kind != end {
			p.expect(",")
		}
	}
	return all
}

func (p *parser) integer(t token) expr {
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil {
		p.fail(t.line, "the number %s is beyond 64 bits, which is not supported", t.text)
	}
	return &constant{n}
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

func (p *parser) subscript(of expr) expr {
	t := p.next()
	if t.kind == "." {
		switch attr := p.next(); {
		case attr.kind == kindName && strings.HasPrefix(attr.text, "__"):
			p.fail(attr.line, "the attribute '%s' is unsafe and not supported", attr.text)
		case attr.kind == kindName:
			return &attrExpr{of, attr.text, t.line}
		case attr.kind == kindInteger:
			return &itemExpr{of, p.integer(attr), t.line}
		default:
			p.fail(attr.line, "expected a name or number behind '.', found %s", attr)
		}
	}
	var bounds [3]expr
	colons := 0
	for ; ; colons++ {
		if k := p.cur().kind; k != ":" && k != "]" {
			bounds[colons] = p.expression()
		}
		if colons == 2 || !p.skip(":") {
			break
		}
	}
	p.expect("]")
	switch {
	case colons > 0:
		return &sliceExpr{of, bounds[0], bounds[1], bounds[2], t.line}
	case bounds[0] == nil:
		p.fail(t.line, "expected an expression, found ']'")
	}
	return &itemExpr{of, bounds[0], t.line}
}

// callOf reads the arguments of a call of a value.
func (p *parser) callOf(of expr) expr {
	line := p.cur().line
	switch of := of.(type) {
	case *nameExpr:
		if refusedGlobals[of.name] {
			p.fail(line, "the function '%s' is not supported", of.name)
		}
	case *attrExpr:
		switch at, _ := of.of.(*nameExpr); {
		case refusedMethods[of.name]:
			p.fail(line, "the method '%s' is not supported", of.name)
		case at != nil && refusedGlobals[at.name]:
			p.fail(line, "the object '%s' is not supported", at.name)
		}
	}
	return &callExpr{of, p.callArgs(), line}
}

func (p *parser) callArgs() callArgs {
	line := p.expect("(").line
	var c callArgs
	wrong := func(is bool) {
		if is {
			p.fail(line, "the arguments of a call are in the wrong order")
		}
	}
	p.items(")", func() expr {
		switch t := p.cur(); {
		case p.skip("*"):
			wrong(c.star != nil)
			c.star = p.expression()
		case p.skip("**"):
			p.fail(line, "keyword arguments behind '**' are not supported")
		case t.kind == kindName && p.look().kind == "=":
			if slices.Contains(c.names, t.text) {
				p.fail(line, "the keyword argument '%s' is there twice", t.text)
			}
			p.next()
			p.next()
			c.names = append(c.names, t.text)
			c.values = append(c.values, p.expression())
		default:
			wrong(c.star != nil || len(c.names) > 0)
			c.args = append(c.args, p.expression())
		}
		return nil
	})
	return c
}

// known returns the filter or test of a name. One that nobody knows fails when it is run, unless parse refuses it.
func (p *parser) known(what string, t token, table map[string]*routine, refused map[string]bool) *routine {
	f := table[t.text]
	switch {
	case refused[t.text]:
		p.fail(t.line, "the %s '%s' is not supported", what, t.text)
	case f == nil:
		p.unknown = append(p.unknown, syntaxError(t.line, "the %s '%s' is not supported", what, t.text))
		return unsupported(what, t.text)
	}
	return f
}

func (p *parser) filter(of expr) *filterExpr {
	t := p.expect(kindName)
	f := &filterExpr{of: of, name: t.text, run: p.known("filter", t, filters, refusedFilters), line: t.line}
	if p.cur().kind != "(" {
		return f
	}
	f.args = p.callArgs()
	named := func(i int) token { // an argument that is the name of a filter or test
		if len(f.args.args) > i {
			if c, ok := f.args.args[i].(*constant); ok {
				name, _ := c.value.(string)
				return token{text: name, line: t.line}
			}
		}
		return token{}
	}
	var inner token
	switch t.text {
	case "map":
		if inner = named(0); inner.text != "" {
			p.known("filter", inner, filters, refusedFilters)
		}
	case "select", "reject":
		inner = named(0)
	case "selectattr", "rejectattr":
		inner = named(1)
	}
	if t.text != "map" && inner.text != "" {
		p.known("test", inner, tests, refusedTests)
	}
	return f
}

func (p *parser) test(of expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	t := p.expect(kindName)
	e := &testExpr{of: of, name: t.text, run: p.known("test", t, tests, refusedTests), line: line}
	switch c := p.cur(); {
	case c.kind == "(":
		e.args = p.callArgs()
	case c.is("is"):
		p.fail(c.line, "tests can't be chained with 'is'")
	case c.kind == kindName && !c.is("else") && !c.is("or") && !c.is("and"),
		c.kind == kindString, c.kind == kindInteger, c.kind == kindFloat, c.kind == "[", c.kind == "{":
		arg, _ := p.subscripts(p.primary())
		e.args.args = []expr{arg}
	}
	if negated {
		return &notExpr{e}
	}
	return e
}
