package constrain

import (
	"math/big"
	"strconv"
	"strings"
)

// maxExponent bounds the numbers of a schema: a float64 holds no more.
const maxExponent = 308

// bound is one end of a range of numbers.
type bound struct {
	at     *big.Rat
	strict bool // the end itself is out
}

// parseNumber reads a JSON number exactly.
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

// decimal is the digits of a number that is not negative, without the last zeros of its fraction.
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

// integers is the integers from lo to hi, nil for no limit but a size in digits.
func integers(m *meter, lo, hi *big.Int, size int) expr {
	c := choice{}
	if lo == nil || lo.Sign() < 0 { // the negative ones, by their size
		from, to := big.NewInt(1), most(lo, size)
		if lo != nil {
			to = new(big.Int).Neg(lo)
		}
		if hi != nil && hi.Sign() < 0 {
			from = new(big.Int).Neg(hi)
			if lo == nil {
				to = most(hi, size)
			}
		}
		c = append(c, seq(literal("-"), naturals(m, from, to)))
	}
	if hi == nil || hi.Sign() >= 0 {
		from, to := new(big.Int), most(lo, size)
		if lo != nil && lo.Sign() > 0 {
			from = lo
		}
		if hi != nil {
			to = hi
		}
		c = append(c, naturals(m, from, to))
	}
	return c
}

// most is the largest integer of size digits, or of one digit more than n has.
func most(n *big.Int, size int) *big.Int {
	if n != nil {
		size = max(size, len(new(big.Int).Abs(n).String())+1)
	}
	top := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(size)), nil)
	return top.Sub(top, big.NewInt(1))
}

// naturals is the integers from lo to hi, neither of them negative.
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

// between is the strings of digits from a to b, which are of one length. With
// low or high false that end is free.
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

// digitsWithin is a digit from first to last, and rest behind it. low and high say which of
// them is the digit of a tight limit, and for rest whether the limit is still tight behind that digit.
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

// decimals is the numbers from lo to hi, nil for no limit, in decimal notation with at most
// places digits behind the point, or as many as it takes if places is negative.
func decimals(m *meter, lo, hi *bound, places int) (expr, error) {
	c := choice{}
	zero := &bound{at: new(big.Rat)}
	if lo == nil || lo.at.Sign() < 0 { // the negative ones, by their size
		from, to := &bound{at: zero.at, strict: true}, negated(lo)
		if hi != nil && (hi.at.Sign() < 0) {
			from = negated(hi)
		}
		x, err := positives(m, from, to, places)
		if err != nil {
			return nil, err
		}
		c = append(c, seq(literal("-"), x))
	}
	if hi == nil || hi.at.Sign() >= 0 {
		from := zero
		if lo != nil && lo.at.Sign() >= 0 {
			from = lo
		}
		x, err := positives(m, from, hi, places)
		if err != nil {
			return nil, err
		}
		c = append(c, x)
	}
	return c, nil
}

func negated(b *bound) *bound {
	if b == nil {
		return nil
	}
	return &bound{at: new(big.Rat).Neg(b.at), strict: b.strict}
}

// positives is the numbers from lo to hi, neither negative.
func positives(m *meter, lo, hi *bound, places int) (expr, error) {
	if hi != nil && lo.at.Cmp(hi.at) > 0 {
		return choice{}, nil
	}
	whole, fraction, exact := decimal(lo.at)
	if !exact {
		return nil, formError("a limit of a number has too many digits")
	}
	f := fractions{low: fraction, lowStrict: lo.strict, places: places}
	top, isTop := most(whole, f.size()), false
	if hi != nil {
		if top, f.high, exact = decimal(hi.at); !exact {
			return nil, formError("a limit of a number has too many digits")
		}
		f.highStrict, isTop = hi.strict, true
	}
	if places < 0 {
		f.places = f.enough(whole, hi)
	}
	m.spend(4*f.places, 16*f.places*exprSize)
	one := big.NewInt(1)
	next, last := new(big.Int).Add(whole, one), new(big.Int).Sub(top, one)
	c := choice{}
	if isTop && whole.Cmp(top) == 0 {
		return seq(naturals(m, whole, whole), f.text(true, true)), nil
	}
	if isTop && whole.Cmp(top) > 0 {
		return c, nil
	}
	c = append(c, seq(naturals(m, whole, whole), f.text(true, false)))
	if !isTop {
		last = top
	} else {
		c = append(c, seq(naturals(m, top, top), f.text(false, true)))
	}
	return append(c, seq(naturals(m, next, last), f.text(false, false))), nil
}

// fractions is what may stand behind the whole part of a number: nothing, or a point and digits.
type fractions struct {
	low, high             string
	lowStrict, highStrict bool
	places                int
}

// safeDigits is how many digits of a number every reader keeps that reads a float64.
const safeDigits = 15

// size is how many digits a whole part without limit has: multiples of a fraction have all their digits within a float64.
func (f *fractions) size() int {
	if f.places >= 0 {
		return max(1, safeDigits-f.places)
	}
	return maxDigits
}

// enough is how many places behind the point there are where any number may be. A limit that
// is itself out wants a number that is still on its side when it is read as a float64.
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

// text is the fractions between the limits that are tight.
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

// mayEnd says whether a number may end before a digit, all digits so far being those of the tight limits.
func (f *fractions) mayEnd(pos int, low, high bool) bool {
	if low && (pos < len(f.low) || f.lowStrict) {
		return false
	}
	return !high || pos < len(f.high) || !f.highStrict
}

// digits is the digits from a position on.
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

// multiples is the numbers with at most so many places behind the point that m
// divides when the point is left out: an automaton with a place for each remainder.
func multiples(m, places int) *graph {
	// Places: 0 the start, 1 behind the sign, 2 behind a first zero, 3 + q·m + r behind q places with the remainder r.
	g := &graph{places: make([]place, 3+m*(places+1))}
	link := func(from int, b byte, to int) {
		g.places[from].edges = append(g.places[from].edges, edge{byteRange{b, b}, int32(to)})
	}
	link(0, '-', 1)
	for _, from := range []int{0, 1} {
		link(from, '0', 2)
		for d := 1; d <= 9; d++ {
			link(from, byte('0'+d), 3+d%m)
		}
	}
	point := func(from, r int) { // the first place behind the point
		for d := 0; d < 10 && places > 0; d++ {
			link(from, byte('0'+d), 3+m+(10*r+d)%m)
		}
	}
	for q := range places + 1 {
		for r := range m {
			from := 3 + q*m + r
			for d := 0; d < 10 && q != 0 && q < places; d++ {
				link(from, byte('0'+d), 3+(q+1)*m+(10*r+d)%m)
			}
			for d := 0; d < 10 && q == 0; d++ {
				link(from, byte('0'+d), 3+(10*r+d)%m)
			}
			n := r
			for range places - q {
				n = 10 * n % m
			}
			g.places[from].final = n == 0
		}
	}
	if places > 0 { // behind the point itself
		at := len(g.places)
		g.places = append(g.places, make([]place, m)...)
		for r := range m {
			link(3+r, '.', at+r)
			point(at+r, r)
		}
		link(2, '.', at)
	}
	g.places[2].final = true
	return g
}
