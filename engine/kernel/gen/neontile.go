package main

// Products of tiles for arm64: one tile with 1 or 4 vectors. A register holds four rows. SDOT, by element, adds four
// products of weights with four shared activations to 32-bit sums. Weights of up to six bits pass for signed; weights
// of 8 bits become signed by a flip of their highest bit. The sums' initial values subtract the offset of the
// weights. A pass has sums of four rows for one vector, of eight rows for four, and of four rows for four vectors
// with two sums each.
//
//	R0  results [tokens][16] float32   R1       the tile's current block
//	R2  the first vector, R9…R11 more  R3, R5   bytes from a vector to the next, and between their blocks' scales
//	R4  its scales, R12…R14 more       R6       blocks, or columns, to go
//	R7, R8  a block's head, parts to go
type neonTile struct {
	*neon
	tokens, quads int     // quads of rows in a pass
	x             [][]int // [token][2] activations
	b             []int   // [token] a block's scale, sum, total, halves
	sums          []int   // float sums of one vector, where there is one
	acc           [][]int // [token][quad] integer sums
	last          [][]int // the sums of Q6_K's last 16 columns
	low4, high    int     // masks
	offset        int     // minus the offset of the weights
	free          []int
}

var (
	vectorRegs = []string{"R2", "R9", "R10", "R11"}
	scaleRegs  = []string{"R4", "R12", "R13", "R14"}
)

// ints begins a function of 8-bit activations.
func (a *neonTile) ints(name string) {
	a.code(`

// func mul%sn%d(acc *float32, w *byte, x *int8, xs int, b *block, bs int, n int)
TEXT ·mul%sn%d(SB), NOSPLIT, $0-56
	MOVD acc+0(FP), R0
	MOVD w+8(FP), R1
	MOVD x+16(FP), R2
	MOVD xs+24(FP), R3
	MOVD b+32(FP), R4
	MOVD bs+40(FP), R5
	MOVD n+48(FP), R6
`, name, a.tokens, name, a.tokens)
	for i := 1; i < a.tokens; i++ {
		a.op("ADD R3, %s, %s", vectorRegs[i-1], vectorRegs[i])
		a.op("ADD R5, %s, %s", scaleRegs[i-1], scaleRegs[i])
	}
}

// allot assigns registers. A type of two scales has two sums a row, so a pass has half as many rows.
func (a *neonTile) allot(two, high, offset bool) {
	var r bank
	a.quads = 4
	if a.tokens > 1 {
		a.quads = 2
		if two {
			a.quads = 1
		}
	}
	a.x, a.acc, a.last = nil, nil, nil
	a.b = r.take(a.tokens)
	for range a.tokens {
		a.x = append(a.x, r.take(2))
		a.acc = append(a.acc, r.take(a.quads))
		if two {
			a.last = append(a.last, r.take(a.quads))
		}
	}
	if a.tokens == 1 {
		a.sums = r.take(4)
	}
	a.low4 = r.one()
	if high {
		a.high = r.one()
	}
	if offset {
		a.offset = r.one()
	}
	a.free = r.rest()
}

// clearSums sets the float sums to zero: in registers for one vector, at R0 for more.
func (a *neonTile) clearSums() {
	for _, r := range a.sums {
		a.zero(r)
	}
	if a.tokens > 1 {
		a.zero(a.free[0])
		for i := range 2 * a.tokens {
			a.op("FSTPQ (F%d, F%d), %d(R0)", a.free[0], a.free[0], 32*i)
		}
	}
}

func (a *neonTile) end() {
	for h := 0; h < len(a.sums); h += 2 {
		a.op("FSTPQ (F%d, F%d), %d(R0)", a.sums[h], a.sums[h+1], 16*h)
	}
	a.op("RET")
}

// fetch loads the vectors' next 32 activations and their blocks' scales and sums.
func (a *neonTile) fetch() {
	for i := range a.tokens {
		a.op("FMOVQ.P 16(%s), F%d", scaleRegs[i], a.b[i])
		a.op("VLD1.P 32(%s), [V%d.B16, V%d.B16]", vectorRegs[i], a.x[i][0], a.x[i][1])
	}
}

// load loads a pass's registers of four rows each from an offset in the block.
func (a *neonTile) load(dst []int, pass, at int) {
	at += 16 * a.quads * pass
	if a.quads == 1 {
		a.op("FMOVQ %d(R1), F%d", at, dst[0])
	}
	for q := 0; q+1 < a.quads; q += 2 {
		a.op("FLDPQ %d(R1), (F%d, F%d)", at+16*q, dst[q], dst[q+1])
	}
}

// dot adds the products of the weights w, quad q of a pass, with group g of four activations.
func (a *neonTile) dot(acc [][]int, q, w, g int) {
	for i := range a.tokens {
		a.vector("SDOT4SE", acc[i][q], w, a.x[i][g/4], g%4)
	}
}

// clearInts clears integer sums.
func (a *neonTile) clearInts(acc [][]int) {
	for _, regs := range acc {
		for _, r := range regs {
			a.zero(r)
		}
	}
}

// bytesAt widens 4·quads bytes of a pass, r bytes into the block at base, to as many registers.
func (a *neonTile) bytesAt(dst []int, base string, at, pass int) {
	at += 4 * a.quads * pass
	a.op("%s %d(%s), F%d", []string{"", "FMOVS", "FMOVD", "", "FMOVQ"}[a.quads], at, base, dst[0])
	a.widen(dst, dst[0], "UXTL")
}

// widen makes 32-bit integers of the bytes in a register, which may be dst[0].
func (a *neonTile) widen(dst []int, from int, op string) {
	if a.quads == 4 {
		a.vector(op+"16B", dst[2], from)
	}
	a.vector(op+"8B", dst[0], from)
	for q := 0; q < a.quads; q += 2 {
		if q+1 < a.quads {
			a.vector(op+"8H", dst[q+1], dst[q])
		}
		a.vector(op+"4H", dst[q], dst[q])
	}
}

// halvesAt loads a pass's halves as floats.
func (a *neonTile) halvesAt(dst []int, base string, at, pass int) {
	at += 8 * a.quads * pass
	for q := 0; q < a.quads; q += 2 {
		if a.quads == 1 {
			a.op("FMOVD %d(%s), F%d", at, base, dst[0])
		} else {
			a.op("FMOVQ %d(%s), F%d", at+8*q, base, dst[q])
			a.vector("FCVTL8H", dst[q+1], dst[q])
		}
		a.vector("FCVTL4H", dst[q], dst[q])
	}
}

// add converts a pass's integer sums to floats, multiplies them by the weights' scales and the activations', and adds
// them to the float sums. With lows, it subtracts lows times the activations' sum.
func (a *neonTile) add(pass int, scale, lows, spare []int) {
	for i := range a.tokens {
		to := a.sums
		if a.tokens > 1 {
			to = spare[:a.quads]
			a.inMemory("FMOVQ", "FLDPQ", to, i, pass)
		}
		for q := range a.quads {
			s := a.acc[i][q]
			a.vector("SCVTF4S", s, s)
			a.vector("FMUL4S", s, s, scale[q])
			a.vector("FMLA4SE", to[q], s, a.b[i], 0)
			if lows != nil {
				a.vector("FMLS4SE", to[q], lows[q], a.b[i], 1)
			}
		}
		if a.tokens > 1 {
			a.inMemory("FMOVQ", "FSTPQ", to, i, pass)
		}
	}
}

// inMemory loads or stores a pass's float sums with vector i.
func (a *neonTile) inMemory(single, pair string, regs []int, i, pass int) {
	at := 64*i + 16*a.quads*pass
	switch {
	case a.quads == 1 && pair == "FLDPQ":
		a.op("%s %d(R0), F%d", single, at, regs[0])
	case a.quads == 1:
		a.op("%s F%d, %d(R0)", single, regs[0], at)
	case pair == "FLDPQ":
		a.op("FLDPQ %d(R0), (F%d, F%d)", at, regs[0], regs[1])
	default:
		a.op("FSTPQ (F%d, F%d), %d(R0)", regs[0], regs[1], at)
	}
}

func (a *neon) q80(tokens int) {
	t := &neonTile{neon: a, tokens: tokens}
	t.ints("Q80")
	t.allot(false, false, false)
	t.clearSums()
	flip := t.low4
	a.op("VMOVI $0x80, V%d.B16", flip)
	a.line("loop:")
	t.fetch()
	for pass := range 4 / t.quads {
		t.clearInts(t.acc)
		w := ring{regs: t.free[:len(t.free)/t.quads*t.quads]}
		for g := range 8 {
			var regs []int
			for range t.quads {
				regs = append(regs, w.one())
			}
			t.load(regs, pass, 64*g)
			for q, r := range regs {
				a.op("VEOR V%d.B16, V%d.B16, V%d.B16", flip, r, r)
				t.dot(t.acc, q, r, g)
			}
		}
		t.halvesAt(t.free, "R1", 512, pass)
		t.add(pass, t.free, nil, t.free[t.quads:])
	}
	a.code(`
	ADD $544, R1
	SUBS $1, R6, R6
	BNE loop
`)
	t.end()
}

func (a *neon) floats(typ string, tokens int) {
	a.code(`

// func mul%sn%d(acc *float32, w *byte, x *float32, xs, n int)
TEXT ·mul%sn%d(SB), NOSPLIT, $0-40
	MOVD acc+0(FP), R0
	MOVD w+8(FP), R1
	MOVD x+16(FP), R2
	MOVD xs+24(FP), R3
	MOVD n+32(FP), R6
`, typ, tokens, typ, tokens)
	for i := 1; i < tokens; i++ {
		a.op("ADD R3, %s, %s", vectorRegs[i-1], vectorRegs[i])
	}
	for i := range 4 * tokens {
		a.zero(i)
	}
	a.code(`
	SUBS $4, R6, R6
	BLT rest
loop:
`)
	a.columns(typ, tokens, 4)
	a.code(`
	SUBS $4, R6, R6
	BGE loop
rest:
	ADDS $4, R6, R6
	BEQ done
one:
`)
	a.columns(typ, tokens, 1)
	a.code(`
	SUBS $1, R6, R6
	BNE one
done:
`)
	for i := range 2 * tokens {
		a.op("FSTPQ (F%d, F%d), %d(R0)", 2*i, 2*i+1, 32*i)
	}
	a.op("RET")
}

// columns adds one or four columns, in order. The first registers are the sums, those from 16 on the
// activations, those from 20 on weights.
func (a *neon) columns(typ string, tokens, n int) {
	load, size := "FMOVQ.P", 16
	if n == 1 {
		load, size = "FMOVS.P", 4
	}
	for i := range tokens {
		a.op("%s %d(%s), F%d", load, size, vectorRegs[i], 16+i)
	}
	for c := range n {
		w := 20 + c%3*4
		if typ == "F32" {
			a.op("VLD1.P 64(R1), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", w, w+1, w+2, w+3)
		} else {
			widen, first, second := "FCVTL", w+1, w+3
			if typ == "BF16" {
				widen = "SHLL"
			}
			a.op("VLD1.P 32(R1), [V%d.H8, V%d.H8]", w+1, w+2)
			a.vector(widen+"8H", second, w+2)
			a.vector(widen+"4H", w, w+1)
			a.vector(widen+"8H", first, w+1)
			a.vector(widen+"4H", w+2, w+2)
		}
		for i := range tokens {
			for q := range 4 {
				a.vector("FMLA4SE", 4*i+q, w+q, 16+i, c)
			}
		}
	}
}
