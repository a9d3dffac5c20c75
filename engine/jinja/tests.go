package jinja

// test is a function behind is; in is the value in front of it.
type test func(r *run, in any, a args) bool

// tests are Jinja's.
var tests map[string]test

func init() {
	tests = map[string]test{
		"odd":  remainder(2, 1),
		"even": remainder(2, 0),
		"divisibleby": func(r *run, in any, a args) bool {
			return r.equal(r.binary("%", in, r.bind("divisibleby", a, 1, "num")[0]), int64(0))
		},
		"filter": func(r *run, in any, a args) bool {
			r.bind("filter", a, 0)
			name, ok := r.hashKey(in).(string)
			return ok && knownFilter(name)
		},
		"test": func(r *run, in any, a args) bool {
			r.bind("test", a, 0)
			name, ok := r.hashKey(in).(string)
			return ok && tests[name] != nil
		},
		"lower":  func(r *run, in any, a args) bool { r.bind("lower", a, 0); return hasCase(r.str(in), isLower, isUpper) },
		"upper":  func(r *run, in any, a args) bool { r.bind("upper", a, 0); return hasCase(r.str(in), isUpper, isLower) },
		"sameas": sameAs,
		"in": func(r *run, in any, a args) bool {
			return r.contains(r.bind("in", a, 1, "seq")[0], in)
		},
		"iterable": func(r *run, in any, a args) bool {
			r.bind("iterable", a, 0)
			_, ok := r.iterator(in)
			return ok
		},
	}
	for name, is := range kinds {
		tests[name] = func(r *run, in any, a args) bool { r.bind(name, a, 0); return is(in) }
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = func(r *run, in any, a args) bool { return r.holds(op, in, r.bind(name, a, 1, "/other")[0]) }
		}
	}
}

// kinds are the tests that ask what a value is.
var kinds = map[string]func(any) bool{
	"defined":   func(v any) bool { _, is := v.(*undefined); return !is },
	"undefined": func(v any) bool { _, is := v.(*undefined); return is },
	"none":      func(v any) bool { return v == nil },
	"boolean":   func(v any) bool { _, is := v.(bool); return is },
	"true":      func(v any) bool { return v == true },
	"false":     func(v any) bool { return v == false },
	"integer":   func(v any) bool { _, is := v.(bool); return !is && isInt(v) },
	"float":     func(v any) bool { _, is := v.(float64); return is },
	"number":    isNumber,
	"string":    func(v any) bool { _, is := unmark(v).(string); return is },
	"mapping":   func(v any) bool { _, is := v.(*Dict); return is },
	"escaped":   func(v any) bool { _, is := v.(markup); return is },
	"sequence": func(v any) bool {
		switch v.(type) {
		case string, markup, *List, *tuple, *Dict, *rangeValue, *undefined:
			return true
		}
		return false
	},
	"callable": func(v any) bool {
		switch v.(type) {
		case *function, *macro, *loop, *undefined:
			return true
		}
		return false
	},
}

func remainder(by, want int64) test {
	return func(r *run, in any, a args) bool {
		r.bind("odd", a, 0)
		return r.equal(r.binary("%", in, by), want)
	}
}

// sameAs asks whether two values are one. For numbers and texts that depends on CPython.
func sameAs(r *run, in any, a args) bool {
	other := r.bind("sameas", a, 1, "other")[0]
	if typeName(in) != typeName(other) {
		return false
	}
	switch in.(type) {
	case nil, bool:
		return in == other
	case string, float64:
		r.fail("sameas of texts and numbers is not supported: use ==")
	case *tuple, *function, *undefined:
		if in != other {
			r.fail("sameas of '%s' objects is not supported", typeName(in))
		}
	}
	if isInt(in) {
		r.fail("sameas of texts and numbers is not supported: use ==")
	}
	return in == other
}
