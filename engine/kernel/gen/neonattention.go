package main

// attention writes the products of attention for arm64. A block of the cache has its keys as [d][16] halves and its
// values as [16][d]; four registers hold a row of keys, or 16 dimensions of a value, as floats. scores1 and
// mix1 are for one query, the others for four, whose scores and weights are 1,024 bytes apart.
//
//	R0  results                  R1  queries, or weights       R2  the cache
//	R3  numbers of blocks        R4  blocks to go              R5  bytes from a block of the cache to the next
//	R6  dimensions               R8  the block's next row      R9  rows, or dimensions, to go
func (a *neon) attention() {
	a.scores1()
	a.scores4()
	a.mix1()
	a.mix4()
}

func (a *neon) attend(name, rows, pointers string) {
	params, size := pointers+", blocks *int32, n, stride, d"+rows+" int", 56
	if rows != "" {
		size = 64
	}
	args := []string{"dst", "q", "keys", "blocks", "n", "stride", "d"}
	if pointers[0] == 'a' {
		args[0], args[1], args[2] = "acc", "w", "values"
	}
	a.begin(name, params, size, args, false)
}

const (
	scoreParams = "dst, q *float32, keys *uint16"
	mixParams   = "acc, w *float32, values *uint16"
)

// block sets R8 to the address of the next block.
func (a *neon) block() {
	a.op("MOVW.P 4(R3), R8")
	a.op("MADD R8, R2, R5, R8")
}

// row converts 16 halves in d+1 and d+2 to floats in d…d+3.
func (a *neon) row(d int) {
	a.two("FCVTL2 H8", d+3, d+2)
	a.two("FCVTL H4", d, d+1)
	a.two("FCVTL2 H8", d+1, d+1)
	a.two("FCVTL H4", d+2, d+2)
}

// products adds the products of four registers with one element to sums.
func (a *neon) products(sums, regs, of int) {
	for q := range 4 {
		a.element("FMLA S4", sums+q, regs+q, of, 0)
	}
}

// scores1 sums the two halves of the dimensions side by side.
func (a *neon) scores1() {
	a.attend("scores1", "", scoreParams)
	a.op("LSR $1, R6, R6") // rows in a half
	a.line("scores1:")
	a.block()
	a.op("ADD R6<<5, R8, R10") // the second half's rows
	a.code(`
	MOVD R1, R11
	ADD R6<<2, R1, R12
	MOVD R6, R9
`)
	for i := range 8 {
		a.zero(i)
	}
	a.line("scores1row:")
	for h, keys := range []string{"R8", "R10"} {
		k := 16 + 8*h
		a.op("VLD1.P 32(%s), [V%d.H8, V%d.H8]", keys, k+1, k+2)
		a.op("FMOVS.P 4(%s), F%d", []string{"R11", "R12"}[h], k+4)
		a.row(k)
		a.products(4*h, k, k+4)
	}
	a.op("SUBS $1, R9, R9")
	a.op("BNE scores1row")
	for i := range 4 {
		a.three("FADD S4", i, i, 4+i)
	}
	a.code(`
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS $1, R4, R4
	BNE scores1
	RET
`)
}

// scores4 sums one half after the other: the first half's sums are kept in the results.
func (a *neon) scores4() {
	queries := []string{"R11", "R12", "R13", "R14"}
	results := []string{"R0", "R19", "R20", "R21"}
	a.attend("scores4", "", scoreParams)
	a.op("LSR $1, R6, R7") // rows in a half
	for i := 1; i < 4; i++ {
		a.op("ADD $1024, %s, %s", results[i-1], results[i])
	}
	a.line("scores4:")
	a.block()
	a.op("MOVD R1, R11")
	for i := 1; i < 4; i++ {
		a.op("ADD R6<<2, %s, %s", queries[i-1], queries[i])
	}
	for h, half := range []string{"first", "second"} {
		a.op("MOVD R7, R9")
		for i := range 16 {
			a.zero(i)
		}
		a.line("scores4%s:", half)
		a.op("VLD1.P 32(R8), [V17.H8, V18.H8]")
		for i, q := range queries {
			a.op("FMOVS.P 4(%s), F%d", q, 20+i)
		}
		a.row(16)
		for i := range 4 {
			a.products(4*i, 16, 20+i)
		}
		a.op("SUBS $1, R9, R9")
		a.op("BNE scores4%s", half)
		for i, to := range results {
			s := 4 * i
			if h == 1 {
				a.op("VLD1 (%s), [V16.S4, V17.S4, V18.S4, V19.S4]", to)
				for q := range 4 {
					a.three("FADD S4", s+q, 16+q, s+q)
				}
			}
			p := []string{"VST1", "VST1.P"}[h]
			at := []string{"", "64"}[h]
			a.op("%s [V%d.S4, V%d.S4, V%d.S4, V%d.S4], %s(%s)", p, s, s+1, s+2, s+3, at, to)
		}
	}
	a.code(`
	SUBS $1, R4, R4
	BNE scores4
	RET
`)
}

// mix1 processes 64 dimensions at a time, then 16.
func (a *neon) mix1() {
	a.attend("mix1", ", rows", mixParams)
	a.op("MOVD rows+56(FP), R7")
	a.line("mix1:")
	a.block()
	a.op("MOVD R0, R10")
	a.op("MOVD R6, R9")
	for _, n := range []int{64, 16} {
		a.code(`
mix1by%d:
	CMP $%d, R9
	BLT mix1no%d
`, n, n, n)
		for i := range n / 8 {
			a.op("FLDPQ %d(R10), (F%d, F%d)", 32*i, 2*i, 2*i+1)
		}
		a.code(`
	MOVD R8, R11
	MOVD R1, R12
	MOVD R7, R13
mix1row%d:
	FMOVS.P 4(R12), F24
`, n)
		for i := range n / 16 {
			k := 16 + i%2*4
			a.op("FLDPQ %d(R11), (F%d, F%d)", 32*i, k+1, k+2)
			a.row(k)
			a.products(4*i, k, 24)
		}
		a.code(`
	ADD R6<<1, R11
	SUBS $1, R13, R13
	BNE mix1row%d
`, n)
		for i := range n / 8 {
			a.op("FSTPQ.P (F%d, F%d), 32(R10)", 2*i, 2*i+1)
		}
		a.code(`
	ADD $%d, R8
	SUB $%d, R9
	JMP mix1by%d
mix1no%d:
`, 2*n, n, n, n)
	}
	a.code(`
	ADD $64, R1
	SUBS $1, R4, R4
	BNE mix1
	RET
`)
}

// mix4 processes 16 dimensions at a time.
func (a *neon) mix4() {
	results := []string{"R10", "R19", "R20", "R21"}
	a.attend("mix4", "", mixParams)
	a.line("mix4:")
	a.block()
	a.op("MOVD R0, R10")
	for i := 1; i < 4; i++ {
		a.op("ADD R6<<2, %s, %s", results[i-1], results[i])
	}
	a.op("MOVD R6, R9")
	a.line("mix4by16:")
	for i, from := range results {
		s := 4 * i
		a.op("VLD1 (%s), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", from, s, s+1, s+2, s+3)
	}
	a.code(`
	MOVD R8, R11
	MOVD R1, R12
	ADD $64, R1, R13
mix4row:
	FLDPQ (R11), (F17, F18)
`)
	for i := range 4 {
		a.op("FMOVS %d(R12), F%d", 1024*i, 20+i)
	}
	a.row(16)
	for i := range 4 {
		a.products(4*i, 16, 20+i)
	}
	a.code(`
	ADD R6<<1, R11
	ADD $4, R12
	CMP R13, R12
	BNE mix4row
`)
	for i, to := range results {
		s := 4 * i
		a.op("VST1.P [V%d.S4, V%d.S4, V%d.S4, V%d.S4], 64(%s)", s, s+1, s+2, s+3, to)
	}
	a.code(`
	ADD $32, R8
	SUBS $16, R9, R9
	BNE mix4by16
	ADD $64, R1
	SUBS $1, R4, R4
	BNE mix4
	RET
`)
}
