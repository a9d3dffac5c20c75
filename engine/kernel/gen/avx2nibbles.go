package main

import "fmt"

// nibbles multiplies unsigned weights. BX is the block's head, R12 counts its parts. The stack holds the factors of sums
// of pairs: the rows' integer scales, as 16-bit values that fill 32 bits. Those of a part's first 16 columns are at 0, of
// the last at 64. For Q6_K, both scales times -32 are at 128.
func (a *avx2) nibbles(t nibble, tokens int) {
	frame := 0
	if t.parts > 1 {
		frame = 192
	}
	a.ints(t.name, tokens, frame)
	a.line("loop:")
	if t.parts > 1 {
		a.code(`
	MOVQ SI, BX
	ADDQ $%d, SI
	MOVQ $%d, R12
part:
`, t.head, t.parts)
		a.scales(t)
	}
	if t.high == 0 {
		a.four(t, tokens)
	} else {
		a.more(t, tokens)
	}
	if t.parts == 1 {
		a.op("VCVTPH2PS %d(SI), Y8", t.scaleAt)
		a.op("VCVTPH2PS %d(SI), Y9", t.scaleAt+16)
	} else {
		a.op("VCVTPH2PS (BX), Y8")
		a.op("VCVTPH2PS 16(BX), Y9")
	}
	if t.lows {
		for h := range 2 {
			a.code(`
	VPMOVZXBD %d(SI), Y%d
	VCVTPH2PS %d(BX), Y12
	VCVTDQ2PS Y%d, Y%d
`, t.scaleAt+16+8*h, 10+h, 32+16*h, 10+h, 10+h)
			a.op("VMULPS Y12, Y%d, Y%d", 10+h, 10+h)
		}
	}
	a.addBlock(tokens, t.lows)
	a.op("ADDQ $%d, SI", t.part)
	a.next(tokens)
	if t.parts > 1 {
		a.op("DECQ R12")
		a.op("JNZ part")
	}
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.end(tokens)
}

// scales writes the factors to the stack.
func (a *avx2) scales(t nibble) {
	for h := range 2 {
		if !t.offset {
			a.code(`
	VPMOVZXBD %d(SI), Y8
	VPSLLD $16, Y8, Y9
	VPOR Y8, Y9, Y8
	VMOVDQU Y8, %d(SP)
`, t.scaleAt+8*h, 32*h)
			continue
		}
		a.code(`
	VPMOVSXBW %d(SI), Y8
	VPSLLD $16, Y8, Y9
	VPSRLD $16, Y9, Y10
	VPOR Y9, Y10, Y10
	VMOVDQU Y10, %d(SP)
	VPSRLD $16, Y8, Y9
	VPSLLD $16, Y9, Y10
	VPOR Y9, Y10, Y10
	VMOVDQU Y10, %d(SP)
	VPSLLW $5, Y8, Y8
	VPXOR Y9, Y9, Y9
	VPSUBW Y8, Y9, Y8
	VMOVDQU Y8, %d(SP)
`, t.scaleAt+16*h, 32*h, 64+32*h, 128+32*h)
	}
}

// unpack loads groups 2j and 2j+1 of four columns: to Y8 and Y9 for rows 0…7, to Y10 and Y11 for
// the other rows. It uses Y12 and Y13.
func (a *avx2) unpack(t nibble, j int) {
	for h := range 2 {
		lo, hi := 8+2*h, 9+2*h
		a.op("VMOVDQU %d(SI), Y%d", 64*j+32*h, lo)
		a.op("VPSRLW $4, Y%d, Y%d", lo, hi)
		a.op("VPAND low4<>(SB), Y%d, Y%d", lo, lo)
		a.op("VPAND low4<>(SB), Y%d, Y%d", hi, hi)
		if t.high == 0 {
			continue
		}
		groups := 8 / t.high // share a byte
		at := highAt + 2*j/groups*64 + 32*h
		a.op("VMOVDQU %d(SI), Y12", at)
		for k, r := range []int{lo, hi} {
			bit, from := (2*j+k)%groups*t.high, 12
			if bit < 4 {
				a.op("VPSLLW $%d, Y12, Y13", 4-bit)
				from = 13
			} else if bit > 4 {
				a.op("VPSRLW $%d, Y12, Y13", bit-4)
				from = 13
			}
			a.op("VPAND %s<>(SB), Y%d, Y13", []string{"", "bit4", "bit45"}[t.high], from)
			a.op("VPOR Y13, Y%d, Y%d", r, r)
		}
	}
}

// four sums all products of a part in 16 bits: they are at most 8·2·15·127.
func (a *avx2) four(t nibble, tokens int) {
	for j := range 4 {
		a.fetch(tokens, 64*j)
		a.unpack(t, j)
		for i := range tokens {
			for k := range 2 {
				a.op("VPBROADCASTD %s, Y12", a.x(i, 8*j+4*k))
				for h := range 2 {
					a.sum(j+k == 0, fmt.Sprintf("VPMADDUBSW Y12, Y%d", 8+2*h+k), 13+h, "VPADDW", 2*i+h)
				}
			}
		}
	}
	for i := range tokens {
		if t.parts > 1 {
			a.op("VPMADDWD (SP), Y%d, Y%d", 2*i, 2*i)
			a.op("VPMADDWD 32(SP), Y%d, Y%d", 2*i+1, 2*i+1)
			continue
		}
		a.op("VPBROADCASTD %s, Y12", a.b(i, 12))
		a.op("VPMADDWD eights<>(SB), Y12, Y12")
		for h := range 2 {
			a.op("VPMADDWD ones<>(SB), Y%d, Y%d", 2*i+h, 2*i+h)
			a.op("VPADDD Y12, Y%d, Y%d", 2*i+h, 2*i+h)
		}
	}
}

// more sums the products of two groups in 16 bits, at most 2·2·63·127, and multiplies them by the
// rows' scales.
func (a *avx2) more(t nibble, tokens int) {
	if t.offset {
		for i := range tokens {
			a.code(`
	VPBROADCASTD %s, Y12
	VPMADDWD 128(SP), Y12, Y%d
	VPMADDWD 160(SP), Y12, Y%d
`, a.b(i, 12), 2*i, 2*i+1)
		}
	}
	for j := range 4 {
		a.fetch(tokens, 64*j)
		if j%2 == 0 {
			a.fetch(tokens, highAt+32*j)
		}
		a.unpack(t, j)
		scale := 0
		if t.offset && j >= 2 {
			scale = 64
		}
		for i := range tokens {
			a.op("VPBROADCASTD %s, Y12", a.x(i, 8*j))
			a.op("VPBROADCASTD %s, Y13", a.x(i, 8*j+4))
			for h := range 2 {
				a.code(`
	VPMADDUBSW Y12, Y%d, Y14
	VPMADDUBSW Y13, Y%d, Y15
	VPADDW Y15, Y14, Y14
`, 8+2*h, 9+2*h)
				a.sum(j == 0 && !t.offset, fmt.Sprintf("VPMADDWD %d(SP), Y14", scale+32*h), 14, "VPADDD", 2*i+h)
			}
		}
	}
}
