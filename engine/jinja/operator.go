package jinja

import (
	"cmp"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// small returns a whole number within 64 bits; bools are numbers.
func small(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

func isInt(v any) bool {
	_, isBig := v.(bigInt)
	_, ok := small(v)
	return ok || isBig
}

func isNumber(v any) bool {
	_, ok := v.(float64)
	return ok || isInt(v)
}

func (m *meter) float(v any) float64 {
	if n, ok := small(v); ok {
		return float64(n)
	}
	switch v := v.(type) {
	case float64:
		return v
	case bigInt:
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			return f
		}
		m.fail("int too large to convert to float")
	}
	m.fail("a number is wanted, not '%s'", typeName(v))
	return 0
}

func (m *meter) binary(op string, a, b any) any {
	if s, ok := a.(string); ok && op == "%" { // undefined values are allowed
		return percent(m, s, b)
	}
	m.check(a, b)
	if isNumber(a) && isNumber(b) {
		return m.arithmetic(op, a, b)
	}
	switch op {
	case "+":
		if v, ok := m.join(a, b); ok {
			return v
		}
	case "*":
		if isInt(a) {
			a, b = b, a
		}
		if isInt(b) {
			if v, ok := m.repeat(a, max(m.number("*", b), 0)); ok {
				return v
			}
		}
	}
	m.fail("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

func (m *meter) arithmetic(op string, a, b any) any {
	x, ok := small(a)
	y, ok2 := small(b)
	if !ok || !ok2 {
		if isInt(a) && isInt(b) {
			m.fail("arithmetic with numbers beyond 64 bits is not supported")
		}
		return m.floats(op, m.float(a), m.float(b))
	}
	var v int64
	switch op {
	case "+":
		v = x + y
		ok = (v > x) == (y > 0)
	case "-":
		v = x - y
		ok = (v < x) == (y > 0)
	case "*":
		v = x * y
		ok = x == 0 || v/x == y && (x != -1 || y != math.MinInt64)
	default:
		const exact = 1 << 53 // float64 has all whole numbers up to here
		if y == 0 {
			m.fail("division by zero")
		}
		if x > exact || x < -exact || y > exact || y < -exact {
			m.fail("a division of numbers beyond 2**53 is not supported")
		}
		if op == "/" {
			return float64(x) / float64(y)
		}
		d, rest := x/y, x%y
		if rest != 0 && (rest < 0) != (y < 0) { // Python rounds down
			d, rest = d-1, rest+y
		}
		if v = rest; op == "//" {
			v = d
		}
	}
	if !ok {
		m.fail("the result of %s is beyond 64 bits, which is not supported", op)
	}
	return v
}

func (m *meter) floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			m.fail("float division by zero")
		}
		return x / y
	}
	m.fail("%s of floats is not supported", op)
	return nil
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func (m *meter) join(a, b any) (any, bool) {
	escaped := func(v any) markup {
		if v, ok := v.(string); ok {
			m.grow(5 * len(v))
			return markup(htmlEscapes.Replace(v))
		}
		return v.(markup)
	}
	x, isText := plain(a).(string)
	y, isText2 := plain(b).(string)
	if isText && isText2 {
		m.grow(len(x) + len(y))
		if plain(a) != a || plain(b) != b {
			return escaped(a) + escaped(b), true
		}
		return x + y, true
	}
	if p, q, ok := sequences(a, b); ok {
		m.growList(len(p) + len(q))
		_, of := sequence(a)
		return of(append(append(make([]any, 0, len(p)+len(q)), p...), q...)), true
	}
	return nil, false
}

func (m *meter) repeat(v any, n int) (any, bool) {
	if s, ok := v.(string); ok {
		m.grow(times(len(s), n))
		return strings.Repeat(s, min(n, times(len(s), n))), true
	}
	items, of := sequence(v)
	if of == nil {
		return nil, false
	}
	size := times(len(items), n)
	m.growList(size)
	out := make([]any, 0, size)
	for len(out) < size {
		out = append(out, items...)
	}
	return of(out), true
}

// compareNumbers is not ok if one is NaN.
func compareNumbers(a, b any) (order int, ok bool) {
	x, ok := small(a)
	y, ok2 := small(b)
	if ok && ok2 {
		return cmp.Compare(x, y), true
	}
	for _, v := range []any{a, b} {
		if f, is := v.(float64); is && math.IsNaN(f) {
			return 0, false
		}
	}
	return exact(a).Cmp(exact(b)), true
}

func exact(v any) *big.Float {
	switch v := v.(type) {
	case float64:
		return new(big.Float).SetFloat64(v)
	case bigInt:
		f, _ := new(big.Float).SetPrec(uint(4 * len(v))).SetString(string(v)) // it was parsed from digits
		return f
	}
	n, _ := small(v)
	return new(big.Float).SetInt64(n)
}

func (m *meter) equal(a, b any) bool {
	a, b = plain(a), plain(b)
	if isNumber(a) && isNumber(b) {
		order, ok := compareNumbers(a, b)
		return ok && order == 0
	}
	switch a := a.(type) {
	case string:
		s, ok := b.(string)
		m.step(len(a) >> 8)
		return ok && a == s
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *List, *tuple:
		x, y, ok := sequences(a, b)
		return ok && (a == b || m.equalItems(x, y))
	case *Dict:
		b, ok := b.(*Dict)
		return ok && (a == b || m.equalDicts(a, b))
	case *view, *rangeValue, *function:
		if reflect.TypeOf(a) == reflect.TypeOf(b) {
			m.fail("comparing '%s' objects is not supported", typeName(a))
		}
	}
	return a == b
}

func (m *meter) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	defer m.walk()()
	for i := range a {
		if m.step(1); !m.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (m *meter) equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	defer m.walk()()
	for i := range a.entries {
		m.step(1)
		v, ok := b.find(a.entries[i].hash)
		if !ok || !m.equal(a.entries[i].value, v) {
			return false
		}
	}
	return true
}

func (m *meter) holds(op string, a, b any) bool {
	switch op {
	case "==", "!=":
		return m.equal(a, b) == (op == "==")
	case "in", "not in":
		return m.contains(b, a) == (op == "in")
	}
	order, ok := m.order(op, a, b)
	return ok && (order < 0 && op[0] == '<' || order > 0 && op[0] == '>' || order == 0 && len(op) == 2)
}

// order compares numbers, strings and sequences; it is false for NaN.
func (m *meter) order(op string, a, b any) (int, bool) {
	m.check(a, b)
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b)
	}
	x, isText := plain(a).(string)
	y, isText2 := plain(b).(string)
	if isText && isText2 {
		m.step(len(x) >> 8)
		return strings.Compare(x, y), true
	}
	if p, q, ok := sequences(a, b); ok {
		return m.orderItems(op, p, q)
	}
	m.fail("'%s' can't compare '%s' and '%s'", op, typeName(a), typeName(b))
	return 0, false
}

func (m *meter) orderItems(op string, a, b []any) (int, bool) {
	defer m.walk()()
	for i := range min(len(a), len(b)) {
		if m.step(1); !m.equal(a[i], b[i]) {
			return m.order(op, a[i], b[i])
		}
	}
	return len(a) - len(b), true
}

func (m *meter) contains(in, v any) bool {
	in, v = plain(in), plain(v)
	switch in := in.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			m.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		m.step(len(in) >> 6)
		return strings.Contains(in, s)
	case *Dict:
		_, ok := in.find(m.hashKey(v))
		return ok
	case *view:
		if in.kind == "dict_keys" {
			return m.contains(in.of, v)
		}
	}
	next := m.iterate(in)
	for {
		e, ok := next()
		if !ok {
			return false
		}
		if m.step(1); m.equal(e, v) {
			return true
		}
	}
}
