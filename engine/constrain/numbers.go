package constrain

import "math/big"

// maxMultiple bounds multipleOf: the automaton has a place for each remainder.
const maxMultiple = 10000

// numberForm is the form of a number.
//
//  1. No limits: any number, any integer.
//  2. multipleOf a power of ten below 1: so many places behind the point.
//  3. multipleOf an integer: an integer that it divides.
//  4. Else the numbers, or integers, between the limits.
func (c *schemaReader) numberForm(f *facts) expr {
	whole := f.types&typeNumber == 0
	low, high := c.limits(f)
	if low == nil && high == nil && f.multiple == nil { // 1
		if whole {
			return c.json.integer
		}
		return c.json.number
	}
	places := -1
	if f.multiple != nil && !f.multiple.IsInt() { // 2
		inverse := new(big.Rat).Inv(f.multiple)
		if digits, exact := f.multiple.FloatPrec(); exact && inverse.IsInt() && inverse.Num().String() == "1"+zeros(digits) {
			places = digits
		} else {
			c.fail("multipleOf of the schema is %s: want an integer, or 0.1, 0.01 and so on", f.multiple.RatString())
			return choice{}
		}
	}
	if f.multiple != nil && f.multiple.IsInt() { // 3
		m := f.multiple.Num()
		if m.Cmp(big.NewInt(maxMultiple)) > 0 {
			c.fail("multipleOf of the schema is %s: want at most %d", m, maxMultiple)
			return choice{}
		}
		c.meter.spend(int(m.Int64()), int(m.Int64())*(placeSize+10*edgeSize))
		return c.both(integersBetween(c.meter, low, high, safeDigits), multiples(int(m.Int64())))
	}
	if whole { // 4
		return integersBetween(c.meter, low, high, maxDigits)
	}
	x, err := decimals(c.meter, low, high, places)
	if err != nil {
		c.fail("%v", err)
		return choice{}
	}
	return x
}

func zeros(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return string(b)
}

// integersBetween is the integers within the limits, of at most size digits where one is missing.
func integersBetween(m *meter, low, high *bound, size int) expr {
	var lo, hi *big.Int
	if low != nil {
		lo = floor(low.at)
		if !low.at.IsInt() || low.strict {
			lo.Add(lo, big.NewInt(1))
		}
	}
	if high != nil {
		hi = floor(high.at)
		if high.at.IsInt() && high.strict {
			hi.Sub(hi, big.NewInt(1))
		}
	}
	if lo != nil && hi != nil && lo.Cmp(hi) > 0 {
		return choice{}
	}
	return integers(m, lo, hi, size)
}

// floor is the largest integer that is not above r.
func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclid's division, and the denominator is positive
}

// numberFormats are the formats of numbers, with their limits; those of OpenAPI.
var numberFormats = map[string][2]*big.Rat{
	"int8": power(7), "int16": power(15), "int32": power(31), "int64": power(63),
	"uint8": natural(8), "uint16": natural(16), "uint32": natural(32), "uint64": natural(64),
	"float": {}, "double": {},
}

// power is from -2ⁿ to 2ⁿ-1.
func power(n uint) [2]*big.Rat {
	top := new(big.Int).Lsh(big.NewInt(1), n)
	return [2]*big.Rat{new(big.Rat).SetInt(new(big.Int).Neg(top)), new(big.Rat).SetInt(top.Sub(top, big.NewInt(1)))}
}

// natural is from 0 to 2ⁿ-1.
func natural(n uint) [2]*big.Rat { return [2]*big.Rat{new(big.Rat), power(n)[1]} }

// limits are the limits of a number, those of its formats included.
func (c *schemaReader) limits(f *facts) (low, high *bound) {
	low, high = f.low, f.high
	for _, name := range f.formats {
		r, ok := numberFormats[name]
		if !ok || r[0] == nil {
			continue // of texts, or of any number
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
