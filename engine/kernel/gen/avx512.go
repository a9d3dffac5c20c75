package main

// avx512 writes AVX-512 assembly: one tile with 1, 4 or 8 vectors. A register holds the 16 rows of a tile. VPDPBUSD adds
// four products of unsigned weights with four shared activations to 32-bit sums. VPDPWSSD subtracts the offset of the
// weights, times the sums of the activations. Registers in all functions:
//
//	SI  the tile's current block        AX  results [tokens][16] float32
//	DI  the first vector, R12 the fifth            R8, R9    bytes from a vector to the next, and three times that
//	DX  the first's scales and sums, R13 the fifth's   R10, R11  the same for those
//	CX  blocks, or columns, to go       BX, R14  a block's head, parts to go
//	Z0…Z7   integer sums     Z8…Z15   float sums     Z16…Z23  weights, or Q6_K's second integer sums
//	Z24…Z31 weights, scales, constants
type avx512 struct{ asm }

func (a *avx512) head() {
	a.line("")
	for _, c := range []struct {
		name  string
		value uint32
	}{
		{"minus128", 0xff80ff80}, {"minus8", 0xfff8fff8}, // two of 16 bits
		{"minus32first", 0x0000ffe0}, {"minus32last", 0xffe00000},
		{"low4", 0x0f0f0f0f}, {"bit4", 0x10101010}, {"bit45", 0x30303030},
	} {
		a.line("DATA %s512<>+0(SB)/4, $%#08x", c.name, c.value)
		a.line("GLOBL %s512<>(SB), RODATA|NOPTR, $4", c.name)
	}
}

// begin loads the arguments and clears the float sums, Z(first) and on.
func (a *avx512) begin(name, params string, size, tokens, first int) {
	a.line("\n// func mul%sz%d(%s)", name, tokens, params)
	a.code(`
TEXT ·mul%sz%d(SB), NOSPLIT, $0-%d
	MOVQ acc+0(FP), AX
	MOVQ w+8(FP), SI
	MOVQ x+16(FP), DI
	MOVQ xs+24(FP), R8
	LEAQ (R8)(R8*2), R9
	LEAQ (DI)(R8*4), R12
`, name, tokens, size)
	for i := range tokens {
		a.op("VPXORD Z%d, Z%d, Z%d", first+i, first+i, first+i)
	}
}

func (a *avx512) ints(name string, tokens int) {
	a.begin(name, "acc *float32, w *byte, x *int8, xs int, b *block, bs int, n int", 56, tokens, 8)
	a.code(`
	MOVQ b+32(FP), DX
	MOVQ bs+40(FP), R10
	MOVQ n+48(FP), CX
	LEAQ (R10)(R10*2), R11
	LEAQ (DX)(R10*4), R13
`)
}

// end stores the float sums, Z(first) and on, and returns.
func (a *avx512) end(tokens, first int) {
	for i := range tokens {
		a.op("VMOVUPS Z%d, %d(AX)", first+i, 64*i)
	}
	a.op("VZEROUPPER")
	a.op("RET")
}

// x returns the address of an offset in vector i, b of an offset in its scales.
func (*avx512) x(i, offset int) string {
	return address([]string{"DI", "R12"}[i/4], "R8", "R9", i%4, offset)
}
func (*avx512) b(i, offset int) string {
	return address([]string{"DX", "R13"}[i/4], "R10", "R11", i%4, offset)
}

// start clears integer sums, Z(first) and on, or sets them to offset, a register of pairs of 16 bits, times
// the sums of the activations.
func (a *avx512) start(tokens, first, offset int) {
	for i := range tokens {
		a.op("VPXORD Z%d, Z%d, Z%d", first+i, first+i, first+i)
		if offset > 0 {
			a.op("VPDPWSSD.BCST %s, Z%d, Z%d", a.b(i, 12), offset, first+i)
		}
	}
}

// dot adds the products of the weights Z(w) with group g of four activations.
func (a *avx512) dot(tokens, w, g, first int) {
	for i := range tokens {
		a.op("VPDPBUSD.BCST %s, Z%d, Z%d", a.x(i, 4*g), w, first+i)
	}
}

func (a *avx512) q80(tokens int) {
	a.ints("Q80", tokens)
	a.op("VPBROADCASTD minus128512<>(SB), Z31")
	a.line("loop:")
	a.start(tokens, 0, 31)
	for g := range 8 {
		a.fetch(tokens, 64*g)
		a.op("VMOVDQU64 %d(SI), Z%d", 64*g, 16+g)
		a.dot(tokens, 16+g, g, 0)
	}
	a.op("VCVTPH2PS 512(SI), Z27")
	for i := range tokens {
		a.op("VCVTDQ2PS Z%d, Z%d", i, i)
		a.add(i, false)
	}
	a.op("ADDQ $544, SI")
	a.next(tokens)
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.end(tokens, 8)
}

// add multiplies a vector's sum by the weights' scales, Z27, and the activations', and adds it
// to the float sum. With lows, it subtracts Z26 times the activations' sum.
func (a *avx512) add(i int, lows bool) {
	a.op("VMULPS Z27, Z%d, Z%d", i, i)
	a.op("VFMADD231PS.BCST %s, Z%d, Z%d", a.b(i, 0), i, 8+i)
	if lows {
		a.op("VFNMADD231PS.BCST %s, Z26, Z%d", a.b(i, 4), 8+i)
	}
}

// floats adds column after column.
func (a *avx512) floats(typ string, tokens int) {
	a.begin(typ, "acc *float32, w *byte, x *float32, xs, n int", 40, tokens, 0)
	a.op("MOVQ n+32(FP), CX")
	a.loops(func(n int) { a.columns(typ, tokens, n) })
	a.end(tokens, 0)
}

func (a *avx512) columns(typ string, tokens, n int) {
	size := columnBytes[typ]
	for c := range n {
		at := c * size
		if at%64 == 0 {
			a.fetch(tokens, at)
		}
		switch typ {
		case "F32":
			a.op("VMOVUPS %d(SI), Z%d", at, 16+c)
		case "F16":
			a.op("VCVTPH2PS %d(SI), Z%d", at, 16+c)
		case "BF16":
			a.op("VPMOVZXWD %d(SI), Z%d", at, 16+c)
			a.op("VPSLLD $16, Z%d, Z%d", 16+c, 16+c)
		}
		for i := range tokens {
			a.op("VFMADD231PS.BCST %s, Z%d, Z%d", a.x(i, 4*c), 16+c, i)
		}
	}
	a.op("ADDQ $%d, SI", n*size)
	a.op("ADDQ $%d, DI", 4*n)
	if tokens > 4 {
		a.op("ADDQ $%d, R12", 4*n)
	}
}
