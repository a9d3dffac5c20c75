package main

import "fmt"

// avx2 writes AVX2 assembly: one tile with one or four vectors.
//
// Registers in all functions:
//
//	SI  the tile's current block        AX  results [tokens][16] float32
//	DI  the first vector                R8, R9    bytes from a vector to the next, and three times that
//	DX  its blocks' scales and sums     R10, R11  the same for those
//	CX  blocks, or columns, to go
//	Y0…Y7  sums: Y(2i) of rows 0…7 and Y(2i+1) of rows 8…15 with vector i
type avx2 struct{ asm }

func (a *avx2) head() {
	for _, c := range []struct {
		name  string
		value uint64
	}{
		{"ones", 0x0001000100010001},   // 16-bit: 1
		{"eights", 0xfff8fff8fff8fff8}, // 16-bit: -8
		{"flip", 0x8080808080808080},
		{"low4", 0x0f0f0f0f0f0f0f0f},
		{"bit4", 0x1010101010101010},
		{"bit45", 0x3030303030303030},
	} {
		a.line("")
		for i := range 4 {
			a.line("DATA %s<>+%d(SB)/8, $%#016x", c.name, 8*i, c.value)
		}
		a.line("GLOBL %s<>(SB), RODATA|NOPTR, $32", c.name)
	}
}

// ints begins a function of 8-bit activations that keeps frame bytes on the stack.
func (a *avx2) ints(name string, tokens, frame int) {
	a.code(`

// func mul%sx%d(acc *float32, w *byte, x *int8, xs int, b *block, bs int, n int)
TEXT ·mul%sx%d(SB), NOSPLIT, $%d-56
	MOVQ acc+0(FP), AX
	MOVQ w+8(FP), SI
	MOVQ x+16(FP), DI
	MOVQ xs+24(FP), R8
	MOVQ b+32(FP), DX
	MOVQ bs+40(FP), R10
	MOVQ n+48(FP), CX
	LEAQ (R8)(R8*2), R9
	LEAQ (R10)(R10*2), R11
`, name, tokens, name, tokens, frame)
	a.clearSums(tokens)
}

// clearSums sets the float sums to zero: in Y6 and Y7 for one vector, at AX for more.
func (a *avx2) clearSums(tokens int) {
	a.op("VPXOR Y6, Y6, Y6")
	a.op("VPXOR Y7, Y7, Y7")
	for i := range 2 * tokens {
		if tokens > 1 {
			a.op("VMOVUPS Y6, %d(AX)", 32*i)
		}
	}
}

// end returns.
func (a *avx2) end(tokens int) {
	if tokens == 1 {
		a.op("VMOVUPS Y6, (AX)")
		a.op("VMOVUPS Y7, 32(AX)")
	}
	a.op("VZEROUPPER")
	a.op("RET")
}

// x returns the address of an offset in vector i, b of an offset in its scales.
func (*avx2) x(i, offset int) string { return address("DI", "R8", "R9", i, offset) }
func (*avx2) b(i, offset int) string { return address("DX", "R10", "R11", i, offset) }

// addBlock converts the integer sums to floats, multiplies them by the weights' scales in Y8 and
// Y9 and the activations', and adds them to the float sums. With lows, it subtracts Y10 and Y11 times the
// activations' sum.
func (a *avx2) addBlock(tokens int, lows bool) {
	for i := range tokens {
		a.op("VBROADCASTSS %s, Y12", a.b(i, 0))
		if lows {
			a.op("VBROADCASTSS %s, Y13", a.b(i, 4))
		}
		for h := range 2 {
			s := 2*i + h
			a.op("VCVTDQ2PS Y%d, Y%d", s, s)
			a.op("VMULPS Y%d, Y%d, Y%d", 8+h, s, s)
			if tokens == 1 {
				a.op("VFMADD231PS Y12, Y%d, Y%d", s, 6+h)
				if lows {
					a.op("VFNMADD231PS Y13, Y%d, Y%d", 10+h, 6+h)
				}
				continue
			}
			a.op("VFMADD213PS %d(AX), Y12, Y%d", 32*s, s)
			if lows {
				a.op("VFNMADD231PS Y13, Y%d, Y%d", 10+h, s)
			}
			a.op("VMOVUPS Y%d, %d(AX)", s, 32*s)
		}
	}
}

// q80 moves a weight's sign to the activation, and multiplies by its absolute value, at most 128. So
// a pair's sum is at most 2·128·127 and fits 16 bits.
func (a *avx2) q80(tokens int) {
	a.ints("Q80", tokens, 0)
	a.code(`
	VMOVDQU ones<>(SB), Y15
	VMOVDQU flip<>(SB), Y14
loop:
`)
	for g := range 8 {
		a.fetch(tokens, 64*g)
		for h := range 2 {
			a.op("VPXOR %d(SI), Y14, Y%d", 64*g+32*h, 8+h)
			a.op("VPABSB Y%d, Y%d", 8+h, 10+h)
		}
		for i := range tokens {
			a.code(`
	VPBROADCASTD %s, Y12
	VPSIGNB Y8, Y12, Y13
	VPSIGNB Y9, Y12, Y12
`, a.x(i, 4*g))
			for h, t := range []int{13, 12} {
				a.op("VPMADDUBSW Y%d, Y%d, Y%d", t, 10+h, t)
				a.sum(g == 0, fmt.Sprintf("VPMADDWD Y15, Y%d", t), t, "VPADDD", 2*i+h)
			}
		}
	}
	a.op("VCVTPH2PS 512(SI), Y8")
	a.op("VCVTPH2PS 528(SI), Y9")
	a.addBlock(tokens, false)
	a.op("ADDQ $544, SI")
	a.next(tokens)
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.end(tokens)
}

// sum adds the result of op to Y(s), by way of Y(t). The first time it sets Y(s).
func (a *avx2) sum(first bool, op string, t int, add string, s int) {
	if first {
		a.op("%s, Y%d", op, s)
		return
	}
	a.op("%s, Y%d", op, t)
	a.op("%s Y%d, Y%d, Y%d", add, t, s, s)
}

// floats adds column after column. Eight sums keep both multipliers busy.
func (a *avx2) floats(typ string, tokens int) {
	a.code(`

// func mul%sx%d(acc *float32, w *byte, x *float32, xs int, n int)
TEXT ·mul%sx%d(SB), NOSPLIT, $0-40
	MOVQ acc+0(FP), AX
	MOVQ w+8(FP), SI
	MOVQ x+16(FP), DI
	MOVQ xs+24(FP), R8
	MOVQ n+32(FP), CX
	LEAQ (R8)(R8*2), R9
`, typ, tokens, typ, tokens)
	for i := range 2 * tokens {
		a.op("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	a.loops(func(n int) { a.columns(typ, tokens, n) })
	for i := range 2 * tokens {
		a.op("VMOVUPS Y%d, %d(AX)", i, 32*i)
	}
	a.op("VZEROUPPER")
	a.op("RET")
}

func (a *avx2) columns(typ string, tokens, n int) {
	size := columnBytes[typ]
	for c := range n {
		at := c * size
		if at%64 == 0 {
			a.fetch(tokens, at)
		}
		for h := range 2 {
			switch r := 8 + h; typ {
			case "F32":
				a.op("VMOVUPS %d(SI), Y%d", at+32*h, r)
			case "F16":
				a.op("VCVTPH2PS %d(SI), Y%d", at+16*h, r)
			case "BF16":
				a.op("VPMOVZXWD %d(SI), Y%d", at+16*h, r)
				a.op("VPSLLD $16, Y%d, Y%d", r, r)
			}
		}
		for i := range tokens {
			a.code(`
	VBROADCASTSS %s, Y10
	VFMADD231PS Y10, Y8, Y%d
	VFMADD231PS Y10, Y9, Y%d
`, a.x(i, 4*c), 2*i, 2*i+1)
		}
	}
	a.op("ADDQ $%d, SI", n*size)
	a.op("ADDQ $%d, DI", 4*n)
}
