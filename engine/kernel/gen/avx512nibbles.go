package main

// nibbles multiplies weights of 4 to 6 bits. Integer scales are converted to floats: their products with
// the sums are below 2^24, and so exact.
func (a *avx512) nibbles(t nibble, tokens int) {
	a.ints(t.name, tokens)
	a.op("VPBROADCASTD low4512<>(SB), Z31")
	if t.parts == 1 {
		a.op("VPBROADCASTD minus8512<>(SB), Z30")
	}
	a.line("loop:")
	if t.parts > 1 {
		a.code(`
	MOVQ SI, BX
	ADDQ $%d, SI
	MOVQ $%d, R14
part:
`, t.head, t.parts)
	}
	a.sums(t, tokens)
	if t.parts == 1 {
		a.op("VCVTPH2PS %d(SI), Z27", t.scaleAt)
	} else {
		a.op("VCVTPH2PS (BX), Z27")
		a.scales(t)
	}
	for i := range tokens {
		a.op("VCVTDQ2PS Z%d, Z%d", i, i)
		if t.parts > 1 {
			a.op("VMULPS Z29, Z%d, Z%d", i, i)
		}
		if t.high == 2 {
			a.op("VCVTDQ2PS Z%d, Z%d", 16+i, 16+i)
			a.op("VFMADD231PS Z30, Z%d, Z%d", 16+i, i)
		}
		a.add(i, t.lows)
	}
	a.op("ADDQ $%d, SI", t.part)
	a.next(tokens)
	if t.parts > 1 {
		a.op("DECQ R14")
		a.op("JNZ part")
	}
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.end(tokens, 8)
}

// sums computes the integer sums of a part. Q6_K has two for each vector, since each half has its own scales.
func (a *avx512) sums(t nibble, tokens int) {
	switch {
	case t.high == 2:
		a.op("VPBROADCASTD minus32first512<>(SB), Z24")
		a.op("VPBROADCASTD minus32last512<>(SB), Z25")
		a.start(tokens, 0, 24)
		a.start(tokens, 16, 25)
	case t.parts == 1:
		a.start(tokens, 0, 30)
	default:
		a.start(tokens, 0, 0)
	}
	for j := range 4 {
		a.fetch(tokens, 64*j)
		if t.high > 0 && 2*j*t.high%8 == 0 {
			at := highAt + 2*j*t.high/8*64
			a.fetch(tokens, at)
			a.op("VMOVDQU64 %d(SI), Z26", at)
		}
		a.code(`
	VMOVDQU64 %d(SI), Z24
	VPSRLW $4, Z24, Z25
	VPANDD Z31, Z24, Z24
	VPANDD Z31, Z25, Z25
`, 64*j)
		first := 0
		if t.high == 2 && j >= 2 {
			first = 16
		}
		for k := range 2 {
			a.highs(t, 2*j+k, 24+k)
			a.dot(tokens, 24+k, 2*j+k, first)
		}
	}
}

// highs adds the bits above the low four of group g, which are in Z26, to Z(w).
func (a *avx512) highs(t nibble, g, w int) {
	if t.high == 0 {
		return
	}
	from, bit := 28, g*t.high%8
	switch {
	case bit < 4:
		a.op("VPSLLW $%d, Z26, Z28", 4-bit)
	case bit > 4:
		a.op("VPSRLW $%d, Z26, Z28", bit-4)
	default:
		from = 26
	}
	a.op("VPTERNLOGD.BCST $0xf8, %s512<>(SB), Z%d, Z%d", []string{"", "bit4", "bit45"}[t.high], from, w) // w | from & bits
}

// scales loads a part's integer scales, as floats: to Z29, for Q6_K's last 16 columns to Z30; and the
// minimums to Z26.
func (a *avx512) scales(t nibble) {
	if t.high == 2 {
		a.op("VPMOVZXWD %d(SI), Z24", t.scaleAt)
		for k, shift := range []int{24, 16} {
			a.code(`
	VPSLLD $%d, Z24, Z25
	VPSRAD $24, Z25, Z25
	VCVTDQ2PS Z25, Z%d
`, shift, 29+k)
		}
		return
	}
	a.code(`
	VPMOVZXBD %d(SI), Z29
	VCVTDQ2PS Z29, Z29
	VPMOVZXBD %d(SI), Z26
	VCVTDQ2PS Z26, Z26
	VCVTPH2PS 32(BX), Z24
	VMULPS Z24, Z26, Z26
`, t.scaleAt, t.scaleAt+16)
}
