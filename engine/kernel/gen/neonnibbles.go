package main

// nibbles multiplies weights of 4 to 6 bits.
func (a *neon) nibbles(n nibble, tokens int) {
	t := &neonTile{neon: a, tokens: tokens}
	two := n.high == 2
	t.ints(n.name)
	t.allot(two, n.high > 0, n.offset)
	t.clearSums()
	a.op("VMOVI $0x0f, V%d.B16", t.low4)
	if n.high > 0 {
		a.op("VMOVI $%#x, V%d.B16", []int{0, 0x10, 0x30}[n.high], t.high)
	}
	if n.offset {
		a.splat(t.offset, -map[bool]uint32{false: 8, true: 32}[two])
	}
	a.line("loop:")
	if n.parts > 1 {
		a.code(`
	MOVD R1, R7
	ADD $%d, R1
	MOVD $%d, R8
part:
`, n.head, n.parts)
	}
	t.fetch()
	for pass := range 4 / t.quads {
		t.sumPart(n, pass)
		t.addPart(n, pass)
	}
	a.op("ADD $%d, R1", n.part)
	if n.parts > 1 {
		a.op("SUBS $1, R8, R8")
		a.op("BNE part")
	}
	a.op("SUBS $1, R6, R6")
	a.op("BNE loop")
	t.end()
}

// start sets the integer sums to zero, or to the offset times the activations' sum.
func (a *neonTile) start(n nibble) {
	if !n.offset {
		a.clearInts(a.acc)
		return
	}
	for i := range a.tokens {
		b := a.b[i]
		if a.last != nil {
			b = a.free[0]
			a.vector("SXTL8H", b, a.b[i]) // the halves' sums, in elements 2 and 3
			for _, r := range a.last[i] {
				a.vector("MUL4SE", r, a.offset, b, 3)
			}
		}
		for _, r := range a.acc[i] {
			a.vector("MUL4SE", r, a.offset, b, 2)
		}
	}
}

// sumPart computes the integer sums of a part.
func (a *neonTile) sumPart(n nibble, pass int) {
	a.start(n)
	w, high, work := a.free[:a.quads], a.free[a.quads:2*a.quads], ring{regs: a.free[a.quads:]}
	if n.high > 0 {
		work.regs = a.free[2*a.quads:]
	}
	for j := range 4 {
		a.load(w, pass, 64*j)
		if n.high > 0 && 2*j*n.high%8 == 0 {
			a.load(high, pass, highAt+2*j*n.high/8*64)
		}
		acc := a.acc
		if a.last != nil && j >= 2 {
			acc = a.last
		}
		for q := range a.quads {
			low, up := work.one(), w[q]
			a.op("VAND V%d.B16, V%d.B16, V%d.B16", a.low4, w[q], low)
			a.op("VUSHR $4, V%d.B16, V%d.B16", w[q], up)
			for k, r := range []int{low, up} {
				if n.high > 0 {
					a.insert(high[q], r, 4-(2*j+k)*n.high%8, &work)
				}
				a.dot(acc, q, r, 2*j+k)
			}
		}
	}
}

// insert adds the bits above the low four, from register from, to w, shifted to the left or to the right.
func (a *neonTile) insert(from, w, left int, work *ring) {
	if left != 0 {
		t := work.one()
		if t == w {
			t = work.one()
		}
		if left > 0 {
			a.op("VSHL $%d, V%d.B16, V%d.B16", left, from, t)
		} else {
			a.op("VUSHR $%d, V%d.B16, V%d.B16", -left, from, t)
		}
		from = t
	}
	a.op("VBIT V%d.B16, V%d.B16, V%d.B16", a.high, from, w)
}

// addPart multiplies a part's sums by its scales and adds them.
func (a *neonTile) addPart(n nibble, pass int) {
	r := a.free
	take := func() []int {
		s := r[:a.quads]
		r = r[a.quads:]
		return s
	}
	scale := take()
	if n.parts == 1 {
		a.halvesAt(scale, "R1", n.scaleAt, pass)
		a.add(pass, scale, nil, r)
		return
	}
	times := take()
	if a.last != nil {
		a.scaleTwice(n, pass, times, r)
	} else {
		a.bytesAt(times, "R1", n.scaleAt, pass)
		for i := range a.tokens {
			for q := range a.quads {
				a.vector("MUL4S", a.acc[i][q], a.acc[i][q], times[q])
			}
		}
	}
	var lows []int
	if n.lows {
		lows = times
		a.bytesAt(lows, "R1", n.scaleAt+16, pass)
		a.halvesAt(scale, "R7", 32, pass)
		for q := range a.quads {
			a.vector("SCVTF4S", lows[q], lows[q])
			a.vector("FMUL4S", lows[q], lows[q], scale[q])
		}
	}
	a.halvesAt(scale, "R7", 0, pass)
	a.add(pass, scale, lows, r)
}

// scaleTwice multiplies the sums of the first and of the last 16 columns by their integer scales, whose bytes
// alternate, and adds them.
func (a *neonTile) scaleTwice(n nibble, pass int, times, work []int) {
	at := n.scaleAt + 8*a.quads*pass
	first, second := work[0], work[1]
	if a.quads == 4 {
		a.op("FLDPQ %d(R1), (F%d, F%d)", at, first, second)
	} else {
		a.op("FMOVD %d(R1), F%d", at, first)
		second = first
	}
	odd := work[2]
	a.op("VUZP2 V%d.B16, V%d.B16, V%d.B16", second, first, odd)
	a.op("VUZP1 V%d.B16, V%d.B16, V%d.B16", second, first, first)
	a.widen(times, first, "SXTL")
	for i := range a.tokens {
		for q := range a.quads {
			a.vector("MUL4S", a.acc[i][q], a.acc[i][q], times[q])
		}
	}
	a.widen(times, odd, "SXTL")
	for i := range a.tokens {
		for q := range a.quads {
			a.vector("MLA4S", a.acc[i][q], a.last[i][q], times[q])
		}
	}
}
