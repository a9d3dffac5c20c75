package jinja

import "strings"

// binary is a op b.
func (r *run) binary(op string, a, b any) any {
	if s, ok := a.(string); ok && op == "%" { // formatting takes undefined values
		return r.percent(s, b)
	}
	r.check(a, b)
	if isNumber(a) && isNumber(b) {
		return r.arithmetic(op, a, b)
	}
	if v, ok := r.markupBinary(op, a, b); ok {
		return v
	}
	switch op {
	case "+":
		if v, ok := r.join(a, b); ok {
			return v
		}
	case "*":
		if n, ok := r.count(b); ok {
			if v, ok := r.repeat(a, n); ok {
				return v
			}
		}
		if n, ok := r.count(a); ok {
			if v, ok := r.repeat(b, n); ok {
				return v
			}
		}
	}
	for _, v := range []any{a, b} {
		if _, ok := v.(*view); ok && op == "-" {
			r.fail("the views of an object as sets are not supported")
		}
	}
	r.fail("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

// join is a + b of sequences.
func (r *run) join(a, b any) (any, bool) {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			r.grow(len(a) + len(b))
			return a + b, true
		}
	case *List:
		if b, ok := b.(*List); ok {
			return &List{r.both(a.items, b.items)}, true
		}
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return &tuple{items: r.both(a.items, b.items)}, true
		}
	}
	return nil, false
}

func (r *run) both(a, b []any) []any {
	r.growList(len(a) + len(b))
	out := make([]any, 0, len(a)+len(b))
	return append(append(out, a...), b...)
}

// count is how often something is to be repeated.
func (r *run) count(v any) (int, bool) {
	if !isInt(v) {
		return 0, false
	}
	n, ok := small(v)
	if !ok {
		r.fail("cannot fit 'int' into an index-sized integer")
	}
	return int(max(min(n, 1<<40), 0)), true
}

func (r *run) repeat(v any, n int) (any, bool) {
	var items []any
	switch v := v.(type) {
	case string:
		r.grow(times(len(v), n))
		if v == "" {
			return "", true
		}
		return strings.Repeat(v, n), true
	case *List:
		items = v.items
	case *tuple:
		items = v.items
	default:
		return nil, false
	}
	size := times(len(items), n)
	r.growList(size)
	out := make([]any, 0, size)
	for len(items) > 0 && len(out) < size {
		out = append(out, items...)
	}
	if _, ok := v.(*tuple); ok {
		return &tuple{items: out}, true
	}
	return &List{out}, true
}

// equal is a == b.
func (r *run) equal(a, b any) bool {
	a, b = unmark(a), unmark(b)
	if isNumber(a) || isNumber(b) {
		if !isNumber(a) || !isNumber(b) {
			return false
		}
		order, ok := compareNumbers(a, b)
		return ok && order == 0
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		r.step(len(a) >> 8)
		return ok && a == s
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *List:
		b, ok := b.(*List)
		return ok && (a == b || r.equalItems(a.items, b.items))
	case *tuple:
		b, ok := b.(*tuple)
		return ok && (a == b || r.equalItems(a.items, b.items))
	case *Dict:
		b, ok := b.(*Dict)
		return ok && (a == b || r.equalDicts(a, b))
	case *rangeValue:
		b, ok := b.(*rangeValue)
		if !ok || a.len() != b.len() {
			return false
		}
		return a.len() == 0 || a.from == b.from && (a.len() == 1 || a.step == b.step)
	case *view:
		return r.equalViews(a, b)
	case *function:
		b, ok := b.(*function)
		if ok && a.self != nil && b.self != nil && a != b {
			r.fail("comparing methods is not supported")
		}
		return ok && a == b
	}
	return a == b
}

func (r *run) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	r.walk()
	defer func() { r.walking-- }()
	for i := range a {
		if r.step(1); !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (r *run) equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	r.walk()
	defer func() { r.walking-- }()
	for i := range a.entries {
		r.step(1)
		v, ok := b.find(a.entries[i].hash)
		if !ok || !r.equal(a.entries[i].value, v) {
			return false
		}
	}
	return true
}

// equalViews compares keys and items as sets; values are equal to nothing but themselves.
func (r *run) equalViews(a *view, other any) bool {
	b, ok := other.(*view)
	switch {
	case !ok:
		return false
	case a == b:
		return true
	case a.kind != b.kind && (a.kind == "dict_values" || b.kind == "dict_values"):
		return false
	case a.kind == "dict_values":
		return false
	}
	if a.of.Len() != b.of.Len() {
		return false
	}
	for i := range a.of.Len() {
		if !r.contains(b, a.at(i)) {
			return false
		}
	}
	return true
}

// ordered is a op b for <, <=, > and >=.
func (r *run) ordered(op string, a, b any) bool {
	r.check(a, b)
	var order int
	var comparable bool
	switch {
	case isNumber(a) && isNumber(b):
		if order, comparable = compareNumbers(a, b); !comparable {
			return false
		}
	default:
		order, comparable = r.order(a, b)
	}
	if !comparable {
		r.fail("'%s' can't compare '%s' and '%s'", op, typeName(a), typeName(b))
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// order compares strings and sequences.
func (r *run) order(a, b any) (int, bool) {
	a, b = unmark(a), unmark(b)
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		r.step(len(a) >> 8)
		return strings.Compare(a, b), ok
	case *List:
		if b, ok := b.(*List); ok {
			return r.orderItems(a.items, b.items), true
		}
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return r.orderItems(a.items, b.items), true
		}
	case *view:
		r.fail("comparing the views of an object by size is not supported")
	}
	return 0, false
}

// orderItems compares by the first elements that differ.
func (r *run) orderItems(a, b []any) int {
	r.walk()
	defer func() { r.walking-- }()
	for i := range min(len(a), len(b)) {
		r.step(1)
		if r.equal(a[i], b[i]) {
			continue
		}
		switch {
		case r.ordered("<", a[i], b[i]):
			return -1
		case r.ordered(">", a[i], b[i]):
			return 1
		}
		r.fail("sequences that hold NaN can't be compared")
	}
	return len(a) - len(b)
}

// contains is v in in.
func (r *run) contains(in, v any) bool {
	in, v = unmark(in), unmark(v)
	switch in := in.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			r.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		r.step(len(in) >> 6)
		return strings.Contains(in, s)
	case *Dict:
		_, ok := in.find(r.hashKey(v))
		return ok
	case *view:
		switch in.kind {
		case "dict_keys":
			return r.contains(in.of, v)
		case "dict_items":
			t, ok := v.(*tuple)
			if !ok || len(t.items) != 2 {
				return false
			}
			at, ok := in.of.find(r.hashKey(t.items[0]))
			return ok && r.equal(at, t.items[1])
		}
	}
	next, ok := r.iterator(in)
	if !ok {
		r.fail("argument of type '%s' is not iterable", typeName(in))
	}
	for {
		e, ok := next()
		if !ok {
			return false
		}
		r.step(1)
		if same(e, v) || r.equal(e, v) {
			return true
		}
	}
}

// same is e is v, as far as it matters for in: NaN is in a list that holds that very NaN.
func same(e, v any) bool {
	switch e.(type) {
	case *List, *Dict, *tuple, *generator, *function, *macro, *namespace, *cycler, *loop, *view, *rangeValue:
		return e == v
	}
	return false
}
