package jinja

import (
	"math"
	"math/big"
)

// maxBits bounds whole numbers: Python itself refuses to print longer ones.
const maxBits = 14000

// intOf is the number that a bool is.
func intOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// isInt says whether v is a whole number; bools are.
func isInt(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int:
		return true
	}
	return false
}

func isNumber(v any) bool {
	_, ok := v.(float64)
	return ok || isInt(v)
}

// bigOf is a whole number as a big one.
func bigOf(v any) *big.Int {
	switch v := v.(type) {
	case bool:
		return big.NewInt(intOf(v))
	case int64:
		return big.NewInt(v)
	case *big.Int:
		return v
	}
	return nil
}

// small is a whole number that fits an int64.
func small(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return intOf(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// whole is b as a value.
func (r *run) whole(b *big.Int) any {
	if b.IsInt64() {
		return b.Int64()
	}
	if b.BitLen() > maxBits {
		r.fail("a number of more than %d bits is not supported", maxBits)
	}
	r.grow(b.BitLen() / 8)
	return b
}

// float is a number as a float.
func (r *run) float(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case bool:
		return float64(intOf(v))
	case int64:
		return float64(v)
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			r.fail("int too large to convert to float")
		}
		return f
	}
	r.fail("a number is wanted, not '%s'", typeName(v))
	return 0
}

// arithmetic computes a op b for numbers.
func (r *run) arithmetic(op string, a, b any) any {
	if !isInt(a) || !isInt(b) {
		return r.floats(op, r.float(a), r.float(b))
	}
	x, ok := small(a)
	y, ok2 := small(b)
	if ok && ok2 {
		if v, ok := smallArithmetic(op, x, y); ok {
			return v
		}
	}
	p, q := bigOf(a), bigOf(b)
	r.step((p.BitLen() + q.BitLen()) >> 4)
	switch op {
	case "+":
		return r.whole(new(big.Int).Add(p, q))
	case "-":
		return r.whole(new(big.Int).Sub(p, q))
	case "*":
		return r.whole(new(big.Int).Mul(p, q))
	case "**":
		return r.power(p, q)
	}
	if q.Sign() == 0 {
		r.fail("division by zero")
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(p, q).Float64()
		if math.IsInf(f, 0) {
			r.fail("the result of a division is too large for a float")
		}
		return f
	}
	d, m := new(big.Int).QuoRem(p, q, new(big.Int))
	if m.Sign() != 0 && m.Sign() != q.Sign() { // Python rounds down
		d.Sub(d, big.NewInt(1))
		m.Add(m, q)
	}
	if op == "//" {
		return r.whole(d)
	}
	return r.whole(m)
}

// smallArithmetic is arithmetic where nothing overflows.
func smallArithmetic(op string, x, y int64) (any, bool) {
	const safe = 1 << 31
	if x >= safe || x <= -safe || y >= safe || y <= -safe {
		return nil, false
	}
	switch op {
	case "+":
		return x + y, true
	case "-":
		return x - y, true
	case "*":
		return x * y, true
	}
	if y == 0 || op == "**" {
		return nil, false
	}
	d, m := x/y, x%y
	if m != 0 && (m < 0) != (y < 0) {
		d, m = d-1, m+y
	}
	switch op {
	case "/":
		return float64(x) / float64(y), true
	case "//":
		return d, true
	}
	return m, true
}

func (r *run) power(p, q *big.Int) any {
	if q.Sign() < 0 {
		if p.Sign() == 0 {
			r.fail("0.0 cannot be raised to a negative power")
		}
		return r.floats("**", r.float(r.whole(p)), r.float(r.whole(q)))
	}
	if q.Sign() == 0 {
		return int64(1)
	}
	if p.BitLen() > 1 && (!q.IsInt64() || times(p.BitLen()-1, int(min(q.Int64(), 1<<40))) > maxBits) {
		r.fail("a number of more than %d bits is not supported", maxBits)
	}
	if p.BitLen() <= 1 { // -1, 0 and 1, to any power
		q = new(big.Int).And(q, big.NewInt(1))
		if q.Sign() == 0 {
			q.SetInt64(2)
		}
		if p.Sign() == 0 {
			q.SetInt64(1)
		}
		return r.whole(new(big.Int).Exp(p, q, nil))
	}
	return r.whole(new(big.Int).Exp(p, q, nil))
}

func (r *run) floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return r.floatPower(x, y)
	}
	if y == 0 {
		r.fail("float division by zero")
	}
	if op == "/" {
		return x / y
	}
	m := math.Mod(x, y)
	div := (x - m) / y
	if m != 0 {
		if (y < 0) != (m < 0) {
			m += y
			div--
		}
	} else {
		m = math.Copysign(0, y)
	}
	if op == "%" {
		return m
	}
	if div == 0 {
		return math.Copysign(0, x/y)
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor
}

func (r *run) floatPower(x, y float64) any {
	switch {
	case x == 0 && y < 0:
		r.fail("0.0 cannot be raised to a negative power")
	case math.IsNaN(x), math.IsNaN(y), math.IsInf(x, 0), math.IsInf(y, 0), x == 0:
		return math.Pow(x, y)
	case y == 0.5 && x > 0:
		return math.Sqrt(x)
	case y != math.Trunc(y) || math.Abs(y) > 2048: // Go rounds others than C does
		r.fail("a float to the power of %s is not supported", floatRepr(y))
	}
	exact, base := new(big.Float).SetPrec(4096).SetInt64(1), new(big.Float).SetFloat64(x)
	for range int(math.Abs(y)) {
		r.step(16)
		exact.Mul(exact, base)
	}
	if y < 0 {
		exact.Quo(new(big.Float).SetPrec(4096).SetInt64(1), exact)
	}
	v, _ := exact.Float64()
	if math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		r.fail("the result of ** is too large for a float")
	}
	return v
}

// compareNumbers is -1, 0 or 1; ok is false where one is not a number (NaN).
func compareNumbers(a, b any) (order int, ok bool) {
	if x, isSmall := small(a); isSmall {
		if y, isSmall := small(b); isSmall {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	for _, v := range []any{a, b} {
		if f, is := v.(float64); is && math.IsNaN(f) {
			return 0, false
		}
	}
	return exact(a).Cmp(exact(b)), true
}

// exact is a number without rounding.
func exact(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return new(big.Float).SetFloat64(f)
	}
	b := bigOf(v)
	return new(big.Float).SetPrec(uint(max(b.BitLen(), 64))).SetInt(b)
}
