package jinja

var tests = map[string]*routine{
	"defined":   typed(func(v any) bool { _, is := v.(*undefined); return !is }),
	"undefined": typed(func(v any) bool { _, is := v.(*undefined); return is }),
	"none":      typed(func(v any) bool { return v == nil }),
	"boolean":   typed(func(v any) bool { _, is := v.(bool); return is }),
	"true":      typed(func(v any) bool { return v == true }),
	"false":     typed(func(v any) bool { return v == false }),
	"integer":   typed(func(v any) bool { _, is := v.(bool); return !is && isInt(v) }),
	"float":     typed(func(v any) bool { _, is := v.(float64); return is }),
	"number":    typed(isNumber),
	"string":    typed(func(v any) bool { _, is := plain(v).(string); return is }),
	"mapping":   typed(func(v any) bool { _, is := v.(*Dict); return is }),
	"iterable":  typed(func(v any) bool { _, is := iterator(v); return is }),
	"sequence": typed(func(v any) bool {
		switch v.(type) {
		case string, markup, *List, *tuple, *Dict, *rangeValue, *undefined:
			return true
		}
		return false
	}),
	"odd":         define(func(r *run, in any, _ []any) any { return r.equal(r.binary("%", in, int64(2)), int64(1)) }),
	"even":        define(func(r *run, in any, _ []any) any { return r.equal(r.binary("%", in, int64(2)), int64(0)) }),
	"divisibleby": define(func(r *run, in any, a []any) any { return r.equal(r.binary("%", in, a[0]), int64(0)) }, "num", required{}),
	"in":          comparison("in"),
	"==":          comparison("=="), "eq": comparison("=="), "equalto": comparison("=="),
	"!=": comparison("!="), "ne": comparison("!="),
	"<": comparison("<"), "lt": comparison("<"), "lessthan": comparison("<"), "<=": comparison("<="), "le": comparison("<="),
	">": comparison(">"), "gt": comparison(">"), "greaterthan": comparison(">"), ">=": comparison(">="), "ge": comparison(">="),
}

// refusedTests are Jinja's others. Parse refuses a template with one.
var refusedTests = words("callable escaped filter lower sameas test upper")

func typed(is func(any) bool) *routine {
	return define(func(_ *run, in any, _ []any) any { return is(in) })
}

func comparison(op string) *routine {
	return define(func(r *run, in any, a []any) any { return r.holds(op, in, a[0]) }, "other", required{})
}
