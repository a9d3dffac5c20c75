package jinja

// eval evaluates an expression.
func (r *run) eval(e expr, s *scope) any {
	r.step(1)
	switch e := e.(type) {
	case *constant:
		return e.value
	case *nameExpr:
		return r.name(e, s)
	case *attrExpr:
		v := r.eval(e.of, s)
		r.line = e.line
		return r.attribute(v, e.name)
	case *itemExpr:
		return r.item(e, s)
	case *callExpr:
		return r.evalCall(e, s, nil)
	case *filterExpr:
		v := r.eval(e.of, s)
		a := r.arguments(&e.args, s)
		r.line = e.line
		return r.filter(e.name, e.run, v, a)
	case *testExpr:
		v := r.eval(e.of, s)
		a := r.arguments(&e.args, s)
		r.line = e.line
		r.reads(v, a)
		return e.run(r, v, a)
	case *binaryExpr:
		left, right := r.eval(e.left, s), r.eval(e.right, s)
		r.line = e.line
		return r.binary(e.op, left, right)
	case *compareExpr:
		return r.compare(e, s)
	case *concatExpr:
		return r.concat(e, s)
	case *andExpr:
		if v := r.eval(e.left, s); !r.truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *orExpr:
		if v := r.eval(e.left, s); r.truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *notExpr:
		return !r.truth(r.eval(e.of, s))
	case *condExpr:
		switch {
		case r.truth(r.eval(e.test, s)):
			return r.eval(e.then, s)
		case e.otherwise != nil:
			return r.eval(e.otherwise, s)
		}
		return r.undefinedf("the inline if-expression evaluated to false and no else section was defined")
	}
	return r.display(e, s)
}

// display evaluates the rarer expressions: lists, tuples, objects, signs and slices.
func (r *run) display(e expr, s *scope) any {
	switch e := e.(type) {
	case *listExpr:
		return &List{r.evalAll(e.items, s)}
	case *tupleExpr:
		return &tuple{items: r.evalAll(e.items, s)}
	case *dictExpr:
		d := &Dict{}
		for i := range e.keys {
			k, v := r.eval(e.keys[i], s), r.eval(e.values[i], s)
			r.line = e.line
			r.setItem(d, k, v)
		}
		return d
	case *unaryExpr:
		v := r.eval(e.of, s)
		r.line = e.line
		r.check(v)
		if !isNumber(v) {
			r.fail("bad operand type for unary %s: '%s'", e.op, typeName(v))
		}
		if f, ok := v.(float64); ok && e.op == "-" {
			return -f
		}
		if _, ok := v.(float64); ok {
			return v
		}
		return r.arithmetic(e.op, int64(0), v)
	case *sliceExpr:
		r.fail("a slice stands alone in its brackets")
	}
	r.fail("internal fault: unknown expression %T", e)
	return nil
}

func (r *run) evalAll(es []expr, s *scope) []any {
	r.growList(len(es))
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = r.eval(e, s)
	}
	return out
}

func (r *run) name(e *nameExpr, s *scope) any {
	if v, ok := s.get(e.name); ok {
		return v
	}
	if v, ok := globals[e.name]; ok {
		return v
	}
	if why, refused := refusedNames[e.name]; refused {
		r.line = e.line
		r.fail("'%s' %s and is not supported", e.name, why)
	}
	return r.undefinedf("'" + e.name + "' is undefined")
}

// refusedNames are globals and special names that templates have in Jinja2 and not here.
var refusedNames = map[string]string{
	"lipsum": "makes random text", "self": "is for templates that extend others", "super": "is for templates that extend others",
}

// concat is a ~ b: the texts of values, one behind the other.
func (r *run) concat(e *concatExpr, s *scope) any {
	parts := make([]string, len(e.items))
	n := 0
	for i, item := range e.items {
		parts[i] = r.str(r.eval(item, s))
		n += len(parts[i])
	}
	r.grow(n)
	out := make([]byte, 0, n)
	for _, p := range parts {
		out = append(out, p...)
	}
	return string(out)
}

// compare evaluates a chain of comparisons as far as they hold.
func (r *run) compare(e *compareExpr, s *scope) any {
	left := r.eval(e.first, s)
	for i, op := range e.ops {
		right := r.eval(e.with[i], s)
		r.line = e.line
		if !r.holds(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (r *run) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	return r.ordered(op, a, b)
}
