package constrain

import (
	"math/big"
	"slices"
)

const maxMultiple = 10000 // a place for each remainder

// numberForm returns the form of a number.
//
//  1. Without limits: any number, or any integer.
//  2. Integers between the limits. An integer is a multiple of a/b (reduced) if and only if a divides it.
//  3. Numbers between the limits, with as many decimal places as multipleOf has, if it is set.
//  4. Of these, the multiples of multipleOf.
func (c *schemaReader) numberForm(f *facts) expr {
	whole := f.types&typeNumber == 0
	low, high := c.limits(f)
	if low == nil && high == nil && f.multiple == nil { // 1
		if whole {
			return c.json.integer
		}
		return c.json.number
	}
	m, places := big.NewInt(1), -1
	if f.multiple != nil {
		places, _ = f.multiple.FloatPrec() // exact: it is of decimal numbers
		m.Set(f.multiple.Num())
		if !whole {
			m.Mul(m, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))
			m.Div(m, f.multiple.Denom())
		}
		if m.Cmp(big.NewInt(maxMultiple/int64(places+1))) > 0 {
			c.fail("multipleOf of the schema is %s: want one with fewer digits, at most %d", f.multiple.FloatString(places), maxMultiple)
			return choice{}
		}
	}
	size := maxDigits
	switch {
	case f.multiple != nil && (whole || places == 0): // 2
		size, places = safeDigits, 0
	case whole:
		places = 0
	case places > 0: // 3
		size = max(1, safeDigits-places)
	}
	x := decimals(c.meter, low, high, places, size)
	if m.Cmp(big.NewInt(1)) == 0 {
		return x
	}
	return c.both(x, multiples(c.meter, int(m.Int64()), places)) // 4
}

func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // rounds down: the denominator is positive
}

// numberFormats are OpenAPI's.
var numberFormats = map[string][2]*big.Rat{
	"int8": power(7), "int16": power(15), "int32": power(31), "int64": power(63),
	"uint8": natural(8), "uint16": natural(16), "uint32": natural(32), "uint64": natural(64),
	"float": {}, "double": {},
}

func (f *facts) whole() bool {
	return slices.ContainsFunc(f.formats, func(name string) bool { return numberFormats[name][0] != nil })
}

// power returns -2ⁿ to 2ⁿ-1.
func power(n uint) [2]*big.Rat {
	top := new(big.Int).Lsh(big.NewInt(1), n)
	return [2]*big.Rat{new(big.Rat).SetInt(new(big.Int).Neg(top)), new(big.Rat).SetInt(top.Sub(top, big.NewInt(1)))}
}

// natural returns 0 to 2ⁿ-1.
func natural(n uint) [2]*big.Rat { return [2]*big.Rat{new(big.Rat), power(n)[1]} }

func (c *schemaReader) limits(f *facts) (low, high *bound) {
	low, high = f.low, f.high
	for _, name := range f.formats {
		r, ok := numberFormats[name]
		if !ok || r[0] == nil {
			continue
		}
		if low == nil || low.at.Cmp(r[0]) < 0 {
			low = &bound{at: r[0]}
		}
		if high == nil || high.at.Cmp(r[1]) > 0 {
			high = &bound{at: r[1]}
		}
	}
	return low, high
}
