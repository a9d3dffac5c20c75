package jinja

import (
	"slices"
	"strconv"
	"strings"
)

type (
	expr func(r *run, s *scope) any

	filterCall func(r *run, s *scope, in any) any
)

// tuple reads expressions with commas between, up to an end or one of the names. A single one without a comma is not
// a tuple.
func (p *parser) tuple(empty bool, one func() expr, ends ...string) expr {
	var items []expr
	for comma := false; ; comma = true {
		t := p.cur()
		if t.kind == kindVariableEnd || t.kind == kindBlockEnd || t.kind == ")" || t.kind == kindName && slices.Contains(ends, t.text) {
			break
		}
		if items = append(items, one()); !p.skip(",") {
			if !comma {
				return items[0]
			}
			break
		}
	}
	if len(items) == 0 && !empty {
		p.fail(p.cur().line, "expected an expression, found %s", p.cur())
	}
	return func(r *run, s *scope) any { return &tuple{r.evalAll(items, s)} }
}

func (p *parser) expression() expr {
	defer p.deeper()()
	known := len(p.unknown)
	e := p.or()
	for p.skip("if") {
		p.unknown = p.unknown[:known] // a branch's
		then, test := e, p.or()
		otherwise := constant(&undefined{"the inline if-expression evaluated to false and no else section was defined"})
		known := len(p.unknown)
		if p.skip("else") {
			otherwise = p.expression()
		}
		p.unknown = p.unknown[:known]
		e = func(r *run, s *scope) any {
			if truth(test(r, s)) {
				return then(r, s)
			}
			return otherwise(r, s)
		}
	}
	return e
}

// The value of logic is the first operand that decides.
func (p *parser) logic(word kind, operand func() expr, decides bool) expr {
	e := operand()
	for p.skip(word) {
		left, right := e, operand()
		e = func(r *run, s *scope) any {
			if v := left(r, s); truth(v) == decides {
				return v
			}
			return right(r, s)
		}
	}
	return e
}

func (p *parser) or() expr  { return p.logic("or", p.and, true) }
func (p *parser) and() expr { return p.logic("and", p.not, false) }

func (p *parser) not() expr {
	if !p.skip("not") {
		return p.compare()
	}
	defer p.deeper()()
	return negate(p.not())
}

func negate(e expr) expr { return func(r *run, s *scope) any { return !truth(e(r, s)) } }

// compare reads a chain of comparisons, which is evaluated up to the first false one.
func (p *parser) compare() expr {
	line := p.cur().line
	first := p.sum()
	var ops []string
	var with []expr
	for {
		op := string(p.cur().kind)
		switch {
		case slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
		case p.cur().is("in"):
			op = "in"
		case p.cur().is("not") && p.look().is("in"):
			p.next()
			op = "not in"
		case len(ops) == 0:
			return first
		default:
			return func(r *run, s *scope) any {
				left := first(r, s)
				for i, op := range ops {
					right := with[i](r, s)
					if r.at(line); !r.holds(op, left, right) {
						return false
					}
					left = right
				}
				return true
			}
		}
		p.next()
		ops, with = append(ops, op), append(with, p.sum())
	}
}

func (p *parser) binary(operand func() expr, ops ...string) expr {
	e := operand()
	for slices.Contains(ops, string(p.cur().kind)) {
		t := p.next()
		left, right, op := e, operand(), string(t.kind)
		e = func(r *run, s *scope) any {
			a, b := left(r, s), right(r, s)
			r.at(t.line)
			return r.binary(op, a, b)
		}
	}
	return e
}

func (p *parser) sum() expr     { return p.binary(p.concat, "+", "-") }
func (p *parser) product() expr { return p.binary(p.factor, "*", "/", "//", "%") }

func (p *parser) concat() expr {
	items := []expr{p.product()}
	for p.skip("~") {
		items = append(items, p.product())
	}
	if len(items) == 1 {
		return items[0]
	}
	return func(r *run, s *scope) any {
		parts := make([]string, len(items))
		for i, item := range items {
			parts[i] = r.str(item(r, s))
		}
		return r.joinTexts(parts, "")
	}
}

func (p *parser) factor() expr {
	e := p.unary(true)
	if t := p.cur(); t.kind == "**" {
		p.fail(t.line, "the operator '**' is not supported")
	}
	return e
}

func (p *parser) unary(filters bool) expr {
	defer p.deeper()()
	var e expr
	if t := p.cur(); t.kind == "-" || t.kind == "+" {
		p.next()
		of := p.unary(false)
		e = func(r *run, s *scope) any {
			v := of(r, s)
			r.at(t.line)
			if f, ok := v.(float64); ok && t.kind == "-" {
				return -f
			}
			return r.binary(string(t.kind), int64(0), v)
		}
	} else {
		e = p.subscripts(p.primary())
	}
	for filters {
		of := e
		switch {
		case p.skip("|"):
			f := p.filter()
			e = func(r *run, s *scope) any { return f(r, s, of(r, s)) }
		case p.skip("is"):
			e = p.test(of)
		default:
			return e
		}
	}
	return e
}

func (p *parser) subscripts(e expr) expr {
	for {
		of, t := e, p.cur()
		switch {
		case p.skip("."):
			e = p.attribute(of)
		case p.skip("["):
			e = p.subscript(of, t.line)
		case t.kind == "(":
			arguments := p.callArgs()
			e = func(r *run, s *scope) any {
				f, a := of(r, s), arguments.eval(r, s)
				r.at(t.line)
				return r.callValue(f, a)
			}
		default:
			return e
		}
	}
}

func constant(v any) expr { return func(*run, *scope) any { return v } }

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
		return constant(text)
	case kindInteger:
		return constant(p.integer(t))
	case kindFloat:
		f, _ := strconv.ParseFloat(t.text, 64) // out of range is infinity, as in Python
		return constant(f)
	case "(":
		e := p.tuple(true, p.expression)
		p.expect(")")
		return e
	case "[":
		items := p.items("]", p.expression)
		return func(r *run, s *scope) any { return &List{r.evalAll(items, s)} }
	case "{":
		var values []expr
		keys := p.items("}", func() expr {
			key := p.expression()
			p.expect(":")
			values = append(values, p.expression())
			return key
		})
		return func(r *run, s *scope) any {
			d := &Dict{}
			for i := range keys {
				k, v := keys[i](r, s), values[i](r, s)
				r.at(t.line)
				r.setItem(d, k, v)
			}
			return d
		}
	}
	p.fail(t.line, "expected an expression, found %s", t)
	return nil
}

func (p *parser) items(end kind, one func() expr) (all []expr) {
	for !p.skip(end) {
		if all = append(all, one()); p.cur().kind != end {
			p.expect(",")
		}
	}
	return all
}

func (p *parser) integer(t token) int64 {
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil {
		p.fail(t.line, "the number %s is beyond 64 bits, which is not supported", t.text)
	}
	return n
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) name(t token) expr {
	if v, ok := constants[t.text]; ok {
		return constant(v)
	}
	if k := p.cur().kind; refusedGlobals[t.text] && (k == "(" || k == ".") {
		p.fail(t.line, "'%s' is not supported", t.text)
	}
	p.mention(t.text)
	f := globals[t.text]
	return func(r *run, s *scope) any {
		r.step(1)
		if v, ok := s.get(t.text); ok {
			return v
		}
		if f != nil {
			return f
		}
		return &undefined{"'" + t.text + "' is undefined"}
	}
}

func (p *parser) attribute(of expr) expr {
	t := p.next()
	switch {
	case t.kind == kindInteger:
		return item(of, constant(p.integer(t)), t.line)
	case t.kind != kindName:
		p.fail(t.line, "expected a name or number behind '.', found %s", t)
	case strings.HasPrefix(t.text, "__"):
		p.fail(t.line, "the attribute '%s' is unsafe and not supported", t.text)
	case refusedMethods[t.text] && p.cur().kind == "(":
		p.fail(t.line, "the method '%s' is not supported", t.text)
	}
	return func(r *run, s *scope) any {
		v := of(r, s)
		r.at(t.line)
		return r.attribute(v, t.text)
	}
}

func item(of, index expr, line int) expr {
	return func(r *run, s *scope) any {
		v, i := of(r, s), index(r, s)
		r.at(line)
		return r.getItem(v, i)
	}
}

func (p *parser) subscript(of expr, line int) expr {
	parts, colons := []expr{of, constant(nil), constant(nil), constant(nil)}, 0
	for {
		if k := p.cur().kind; k != ":" && (k != "]" || colons == 0) {
			parts[colons+1] = p.expression()
		}
		if colons == 2 || !p.skip(":") {
			break
		}
		colons++
	}
	p.expect("]")
	if colons == 0 {
		return item(of, parts[1], line)
	}
	return func(r *run, s *scope) any {
		v := r.evalAll(parts, s)
		r.at(line)
		return r.slice(v[0], v[1], v[2], v[3])
	}
}

type callArgs struct {
	pos    []expr
	star   expr // after *; may be nil
	names  []string
	values []expr
}

func (p *parser) callArgs() callArgs {
	var c callArgs
	line := p.expect("(").line
	p.items(")", func() expr {
		switch t := p.cur(); {
		case t.kind == "**":
			p.fail(line, "keyword arguments behind '**' are not supported")
		case t.kind == kindName && p.look().kind == "=":
			if slices.Contains(c.names, t.text) {
				p.fail(line, "the keyword argument '%s' is there twice", t.text)
			}
			p.next()
			p.next()
			c.names, c.values = append(c.names, t.text), append(c.values, p.expression())
		case c.star != nil || t.kind != "*" && c.names != nil:
			p.fail(line, "the arguments of a call are in the wrong order")
		case p.skip("*"):
			c.star = p.expression()
		default:
			c.pos = append(c.pos, p.expression())
		}
		return nil
	})
	return c
}

func (c *callArgs) eval(r *run, s *scope) args {
	a := args{names: c.names}
	if len(c.pos) > 0 {
		a.pos = make([]any, len(c.pos))
		for i, e := range c.pos {
			a.pos[i] = e(r, s)
		}
	}
	if c.star != nil {
		a.pos = append(a.pos, r.list(c.star(r, s))...)
	}
	for _, e := range c.values {
		a.values = append(a.values, e(r, s))
	}
	return a
}

// An unknown filter or test fails when it is run, unless parse refuses it.
func (p *parser) known(what string, t token, table map[string]*routine, refused map[string]bool) *routine {
	if f := table[t.text]; f != nil {
		return f
	}
	err := errorf(t.line, "the %s '%s' is not supported", what, t.text)
	if refused[t.text] {
		panic(err)
	}
	p.unknown = append(p.unknown, err)
	return &routine{raw: func(r *run, _ any, _ args) any { r.fail("%s", err.Message); return nil }}
}

func (p *parser) filter() filterCall {
	t := p.expect(kindName)
	f := p.known("filter", t, filters, refusedFilters)
	var arguments callArgs
	if p.cur().kind == "(" {
		p.inner(t.text)
		arguments = p.callArgs()
	}
	return func(r *run, s *scope, in any) any {
		a := arguments.eval(r, s)
		r.at(t.line)
		return r.filter(t.text, f, in, a)
	}
}

// inner checks the filter or test that is an argument of a filter.
func (p *parser) inner(filter string) {
	at := p.pos + map[string]int{"map": 1, "select": 1, "reject": 1, "selectattr": 3, "rejectattr": 3}[filter]
	if at == p.pos || at+1 >= len(p.tokens) || at == p.pos+3 && p.tokens[at-1].kind != "," {
		return
	}
	if t, k := p.tokens[at], p.tokens[at+1].kind; t.kind == kindString && (k == "," || k == ")") {
		if filter == "map" {
			p.known("filter", t, filters, refusedFilters)
		} else {
			p.known("test", t, tests, refusedTests)
		}
	}
}

func (p *parser) test(of expr) expr {
	negated := p.skip("not")
	t := p.expect(kindName)
	f := p.known("test", t, tests, refusedTests)
	var arguments callArgs
	switch c := p.cur(); {
	case c.kind == "(":
		arguments = p.callArgs()
	case c.is("is"):
		p.fail(c.line, "tests can't be chained with 'is'")
	case c.kind == kindName && !c.is("else") && !c.is("or") && !c.is("and"),
		slices.Contains([]kind{kindString, kindInteger, kindFloat, "[", "{"}, c.kind):
		arguments.pos = []expr{p.subscripts(p.primary())}
	}
	e := func(r *run, s *scope) any {
		v, a := of(r, s), arguments.eval(r, s)
		r.at(t.line)
		return f.invoke(r, t.text, v, a)
	}
	if negated {
		return negate(e)
	}
	return e
}
