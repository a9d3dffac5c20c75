package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

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

// refusedNames are globals and special names that templates have in Jinja2 and not here.
var refusedNames = map[string]string{
	"lipsum": "makes random text", "self": "is for templates that extend others", "super": "is for templates that extend others",
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
	if why, ok := refusedNames[t.text]; ok {
		p.fail(t.line, "'%s' %s and is not supported", t.text, why)
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
			if refusedMethods[attr.text] && p.cur().kind == "(" {
				p.fail(attr.line, "the method '%s' is not supported", attr.text)
			}
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
		p.fail(t.line, "the filter '%s' is not supported", t.text)
	}
	if p.cur().kind == "(" {
		f.args = p.callArgs()
	}
	p.checkNamed(f)
	return f
}

// checkNamed refuses unknown filters and tests that a filter is given by name.
func (p *parser) checkNamed(f *filterExpr) {
	at, what := 0, "test"
	switch f.name {
	case "map":
		what = "filter"
	case "select", "reject":
	case "selectattr", "rejectattr":
		at = 1
	default:
		return
	}
	if at >= len(f.args.args) {
		return
	}
	c, ok := f.args.args[at].(*constant)
	if !ok {
		return
	}
	if name, ok := c.value.(string); ok && (what == "test" && tests[name] == nil || what == "filter" && filters[name] == nil) {
		p.fail(f.line, "the %s '%s' is not supported", what, name)
	}
}

func (p *parser) test(of expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	t := p.dotted()
	e := &testExpr{of: of, run: tests[t.text], line: line}
	if e.run == nil {
		p.fail(t.line, "the test '%s' is not supported", t.text)
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
