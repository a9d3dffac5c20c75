package constrain

import (
	"math/big"
	"strconv"
	"strings"
)

const maxExponent = 308

type bound struct {
	at     *big.Rat
	strict bool
}

func parseNumber(text string) (*big.Rat, bool) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if n, err := strconv.Atoi(text[i+1:]); err != nil || n > maxExponent || n < -maxExponent {
			return nil, false
		}
	}
	if len(text) > 2*maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// decimal is of a nonnegative number; not exact if it has too many digits.
func decimal(r *big.Rat) (whole *big.Int, fraction string, exact bool) {
	whole = new(big.Int).Quo(r.Num(), r.Denom())
	digits, exact := r.FloatPrec()
	if !exact || digits > 2*maxExponent {
		return nil, "", false
	}
	text := r.FloatString(digits)
	if i := strings.IndexByte(text, '.'); i >= 0 {
		fraction = strings.TrimRight(text[i+1:], "0")
	}
	return whole, fraction, true
}

func most(n *big.Int, size int) *big.Int {
	if n != nil {
		size = max(size, len(new(big.Int).Abs(n).String())+1)
	}
	top := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(size)), nil)
	return top.Sub(top, big.NewInt(1))
}

// naturals returns the form of the integers from lo to hi, both nonnegative.
func naturals(m *meter, lo, hi *big.Int) expr {
	c := choice{}
	if lo.Cmp(hi) > 0 {
		return c
	}
	a, b := lo.String(), hi.String()
	for n := len(a); n <= len(b) && m.spend(n, 4*n*exprSize); n++ {
		from, to := "1"+strings.Repeat("0", n-1), strings.Repeat("9", n)
		if n == 1 {
			from = "0"
		}
		if n == len(a) {
			from = a
		}
		if n == len(b) {
			to = b
		}
		c = append(c, between(from, to, true, true))
	}
	return c
}

// between returns the form of the digit strings from a to b, which have the same length. An end has no limit unless
// low or high is set.
func between(a, b string, low, high bool) expr {
	n := max(len(a), len(b))
	if n == 0 {
		return nil
	}
	if !low && !high {
		return repeat{digit(), n, n}
	}
	first, last := byte('0'), byte('9')
	if low {
		first = a[0]
	}
	if high {
		last = b[0]
	}
	return digitsWithin(first, last, low, high, func(low, high bool) expr { return between(a[1:], b[1:], low, high) })
}

// digitsWithin returns the form of a digit from first to last, followed by rest. low and high report whether first
// and last are digits of a tight limit; rest is told whether it still is after the digit.
func digitsWithin(first, last byte, low, high bool, rest func(low, high bool) expr) expr {
	c := choice{}
	add := func(from, to byte, low, high bool) {
		if from <= to {
			c = append(c, seq(class{{rune(from), rune(to)}}, rest(low, high)))
		}
	}
	if low && high && first == last {
		add(first, first, true, true)
		return c
	}
	if low {
		add(first, first, true, false)
		first++
	}
	if high {
		last--
	}
	add(first, last, false, false)
	if high {
		add(last+1, last+1, false, true)
	}
	return c
}

// decimals returns the form of the numbers from lo to hi in decimal notation. They have at most places digits after the
// point, or as many as needed if places is negative. Without a limit (nil) they have at most size digits before it.
func decimals(m *meter, lo, hi *bound, places, size int) expr {
	c, zero := choice{}, new(big.Rat)
	if lo == nil || lo.at.Sign() < 0 {
		from := &bound{at: zero, strict: true}
		if hi != nil && hi.at.Sign() < 0 {
			from = negated(hi)
		}
		c = append(c, seq(literal("-"), positives(m, from, negated(lo), places, size)))
	}
	if hi == nil || hi.at.Sign() >= 0 {
		from := &bound{at: zero}
		if lo != nil && lo.at.Sign() >= 0 {
			from = lo
		}
		c = append(c, positives(m, from, hi, places, size))
	}
	return c
}

func negated(b *bound) *bound {
	if b == nil {
		return nil
	}
	return &bound{at: new(big.Rat).Neg(b.at), strict: b.strict}
}

// positives is decimals for limits that are not negative.
func positives(m *meter, lo, hi *bound, places, size int) expr {
	if hi != nil && lo.at.Cmp(hi.at) > 0 {
		return choice{}
	}
	whole, fraction, exact := decimal(lo.at)
	f := fractions{low: fraction, lowStrict: lo.strict, places: places}
	top := most(whole, size)
	if hi != nil && exact {
		top, f.high, exact = decimal(hi.at)
		f.highStrict = hi.strict
	}
	if !exact {
		m.fail("a limit of a number has too many digits")
		return choice{}
	}
	if places < 0 {
		f.places = f.enough(whole, hi)
	}
	m.spend(4*f.places, 16*f.places*exprSize)
	one := big.NewInt(1)
	next, last := new(big.Int).Add(whole, one), new(big.Int).Set(top)
	if hi != nil && whole.Cmp(top) == 0 {
		return seq(naturals(m, whole, whole), f.text(true, true))
	}
	c := choice{seq(naturals(m, whole, whole), f.text(true, false))}
	if hi != nil {
		last.Sub(top, one)
		c = append(c, seq(naturals(m, top, top), f.text(false, true)))
	}
	return append(c, seq(naturals(m, next, last), f.text(false, false)))
}

// fractions describes the digits after a whole part. low and high are those of the limits.
type fractions struct {
	low, high             string
	lowStrict, highStrict bool
	places                int
}

// safeDigits is the number of decimal digits that a float64 always preserves.
const safeDigits = 15

// enough returns the number of decimal places if places has no limit. A number must still be on the right side of an
// exclusive limit when parsed as a float64.
func (f *fractions) enough(low *big.Int, high *bound) int {
	n := maxFraction
	if f.lowStrict && low.Sign() > 0 {
		n = safeDigits - len(low.String())
	}
	if f.highStrict && high.at.Sign() > 0 {
		n = min(n, safeDigits-len(floor(high.at).String()))
	}
	return max(n, 1, len(f.low)+1, len(f.high)+1)
}

func (f *fractions) text(low, high bool) expr {
	c := choice{}
	if f.mayEnd(0, low, high) {
		c = append(c, nil)
	}
	if f.places > 0 {
		c = append(c, seq(literal("."), f.digits(0, low, high, true)))
	}
	return c
}

// mayEnd reports whether a number may end before the digit at pos, if all digits so far are those of the tight
// limits.
func (f *fractions) mayEnd(pos int, low, high bool) bool {
	if low && (pos < len(f.low) || f.lowStrict) {
		return false
	}
	return !high || pos < len(f.high) || !f.highStrict
}

func (f *fractions) digits(pos int, low, high, atLeastOne bool) expr {
	c := choice{}
	if !atLeastOne && f.mayEnd(pos, low, high) {
		c = append(c, nil)
	}
	if pos >= f.places {
		return c
	}
	if !low && !high {
		least := 0
		if atLeastOne {
			least = 1
		}
		return repeat{digit(), least, f.places - pos}
	}
	first, last := byte('0'), byte('9')
	if low {
		first = digitAt(f.low, pos)
	}
	if high {
		last = digitAt(f.high, pos)
	}
	return append(c, digitsWithin(first, last, low, high, func(low, high bool) expr { return f.digits(pos+1, low, high, false) }))
}

func digitAt(digits string, pos int) byte {
	if pos < len(digits) {
		return digits[pos]
	}
	return '0'
}

// multiples returns an automaton for the numbers with at most places decimal places that n divides once the point is
// removed. It has a row of places for the whole part, one after the point and one for each decimal; each row has a
// place for each remainder.
func multiples(m *meter, n, places int) *graph {
	b := newBuilder(m, nil, true)
	start, signed, zero := b.add(), b.add(), b.add()
	at := func(row, r int) int32 { return int32(3 + row*n + r%n) }
	digits := func(from int32, first, row, r int) {
		for d := first; d < 10; d++ {
			b.edge(from, at(row, 10*r+d), byteRange{byte('0' + d), byte('0' + d)})
		}
	}
	rows := 1
	if places > 0 {
		rows = places + 2
	}
	for range rows * n {
		b.add()
	}
	b.bytes("-", start, signed)
	b.skip(start, signed)
	b.bytes("0", signed, zero)
	digits(signed, 1, 0, 0)
	ends := []int32{zero}
	for row := range rows {
		for r := range n {
			switch {
			case row == 0:
				digits(at(row, r), 0, row, r)
			case row+1 < rows:
				digits(at(row, r), 0, row+1, r)
			}
			rest := r
			for range places - max(row-1, 0) {
				rest = 10 * rest % n
			}
			if rest == 0 && row != 1 {
				ends = append(ends, at(row, r))
			}
		}
	}
	for r := range min(places, 1) * n {
		b.bytes(".", at(0, r), at(1, r))
	}
	if places > 0 {
		b.bytes(".", zero, at(1, 0))
	}
	return b.done(start, ends...)
}
