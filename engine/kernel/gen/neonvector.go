package main

import "math"

// neonVectors writes the functions of rows for arm64. Each does the same as its namesake in plain Go.
// Lengths are multiples of 8; of 16 with 16 lanes or a maximum, of 4 for pairs.
//
// Exp has its constants in V16 to V29; functions without Exp may use those registers. V30 and V31 are each function's
// own.
func (a *neon) vectors() {
	a.line("\n// What Exp needs, each four times.")
	for i, c := range expConstants {
		for j := range 2 {
			a.line("DATA exp<>+%d(SB)/8, $0x%08x%08x", 16*i+8*j, math.Float32bits(c), math.Float32bits(c))
		}
	}
	a.line("GLOBL exp<>(SB), RODATA|NOPTR, $%d", 16*len(expConstants))
	a.gates()
	a.softcap()
	a.expSum()
	a.maximum()
	a.norm()
	a.squares()
	a.simple()
	a.ropes()
	a.quantize()
}

// expConstants are the constants of Exp.
var expConstants = []float32{-87, 88, 0x1.715476p0, 0x1.8p23, 0x1.62e4p-1, 0x1.7f7d1cp-20,
	1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, float32(math.Inf(1))}

const (
	expLow = iota + 16
	expHigh
	expLog2e
	expMagic
	expLarge
	expSmall
	expPowers           // the coefficients from r^7 to r^2
	one       = 12 + 16 // the coefficient of r and 1
	infinity  = 13 + 16
)

// begin loads a function's arguments to R0 and on, and the constants of Exp if it needs them.
func (a *neon) begin(name, params string, size int, args []string, exp bool) {
	a.line("\n// func %s(%s)", name, params)
	a.line("TEXT ·%s(SB), NOSPLIT, $0-%d", name, size)
	for i, arg := range args {
		a.op("MOVD %s+%d(FP), R%d", arg, 8*i, i)
	}
	if !exp {
		return
	}
	a.op("MOVD $exp<>(SB), R20")
	for i := range len(expConstants) / 2 {
		a.op("FLDPQ %d(R20), (F%d, F%d)", 32*i, 16+2*i, 17+2*i)
	}
}

// repeat ends a loop that counts a register down by n.
func (a *neon) repeat(count string, n int) {
	a.op("SUBS $%d, %s, %s", n, count, count)
	a.op("BNE loop")
}

func (a *neon) load2(base string, d int)  { a.op("FLDPQ (%s), (F%d, F%d)", base, d, d+1) }
func (a *neon) next2(base string, d int)  { a.op("FLDPQ.P 32(%s), (F%d, F%d)", base, d, d+1) }
func (a *neon) store2(base string, n int) { a.op("FSTPQ.P (F%d, F%d), 32(%s)", n, n+1, base) }
func (a *neon) move(d, n int)             { a.op("VMOV V%d.B16, V%d.B16", n, d) }
func (a *neon) multiplyAdd(d, n, m int)   { a.op("VFMLA V%d.S4, V%d.S4, V%d.S4", m, n, d) }

// exp replaces registers by Exp of their elements. It uses four others for each, from work on.
func (a *neon) exp(work int, xs ...int) {
	each := func(do func(x, t, r, p, q int)) {
		for i, x := range xs {
			do(x, work+4*i, work+4*i+1, work+4*i+2, work+4*i+3)
		}
	}
	each(func(x, t, r, p, q int) { a.move(t, expMagic); a.move(r, x) })
	each(func(x, t, r, p, q int) { a.multiplyAdd(t, x, expLog2e) })
	each(func(x, t, r, p, q int) { a.three("FSUB S4", p, t, expMagic) })
	for _, c := range []int{expLarge, expSmall} {
		each(func(x, t, r, p, q int) { a.op("VFMLS V%d.S4, V%d.S4, V%d.S4", c, p, r) })
	}
	each(func(x, t, r, p, q int) { a.move(p, expPowers+1); a.multiplyAdd(p, expPowers, r) })
	for _, c := range []int{expPowers + 2, expPowers + 3, expPowers + 4, expPowers + 5, one, one} {
		each(func(x, t, r, p, q int) { a.move(q, c) })
		each(func(x, t, r, p, q int) { a.multiplyAdd(q, p, r) })
		last := each
		each = func(do func(x, t, r, p, q int)) { // each coefficient that was added is a factor next
			last(func(x, t, r, p, q int) { do(x, t, r, q, p) })
		}
	}
	each(func(x, t, r, p, q int) { a.op("VSHL $23, V%d.S4, V%d.S4", t, t) })
	each(func(x, t, r, p, q int) { a.op("VADD V%d.S4, V%d.S4, V%d.S4", t, p, p) })
	each(func(x, t, r, p, q int) { a.three("FCMGE S4", t, x, expLow); a.three("FCMGT S4", q, x, expHigh) })
	each(func(x, t, r, p, q int) { a.op("VAND V%d.B16, V%d.B16, V%d.B16", t, p, p) })
	each(func(x, t, r, p, q int) { a.three("FCMEQ S4", t, x, x) })
	each(func(x, t, r, p, q int) { a.op("VBIT V%d.B16, V%d.B16, V%d.B16", q, infinity, p) })
	each(func(x, t, r, p, q int) { a.op("VBIT V%d.B16, V%d.B16, V%d.B16", t, p, x) })
}

// sigmoid replaces V4 and V5 by V0 and V1 over 1 plus their Exp, times the values at R1.
func (a *neon) sigmoid() {
	a.exp(6, 4, 5)
	a.next2("R1", 6)
	for i := range 2 {
		a.three("FADD S4", 4+i, 4+i, one)
	}
	for i := range 2 {
		a.three("FDIV S4", i, i, 4+i)
	}
	for i := range 2 {
		a.three("FMUL S4", i, i, 6+i)
	}
	a.store2("R0", 0)
}

func (a *neon) gates() {
	args := []string{"gate", "up", "n"}
	a.begin("siluAsm", "gate, up *float32, n int", 24, args, true)
	a.line("loop:")
	a.load2("R0", 0)
	a.two("FNEG S4", 4, 0)
	a.two("FNEG S4", 5, 1)
	a.sigmoid()
	a.repeat("R2", 8)
	a.op("RET")

	a.begin("geluAsm", "gate, up *float32, n int", 24, args, true)
	a.splat(30, math.Float32bits(0.044715))
	a.splat(31, math.Float32bits(-2*0.7978845608028654))
	a.line("loop:")
	a.load2("R0", 0)
	for i := range 2 {
		a.three("FMUL S4", 2+i, i, i)
		a.move(6+i, one)
		a.three("FMUL S4", 4+i, i, 31)
		a.multiplyAdd(6+i, 2+i, 30)
		a.three("FMUL S4", 4+i, 4+i, 6+i)
	}
	a.sigmoid()
	a.repeat("R2", 8)
	a.op("RET")
}

// number loads an argument of a float32 four times.
func (a *neon) number(arg string, at, d int) {
	a.op("FMOVS %s+%d(FP), F%d", arg, at, d)
	a.op("VDUP V%d.S[0], V%d.S4", d, d)
}

func (a *neon) softcap() {
	a.begin("softcapAsm", "x *float32, n int, limit, inv float32", 24, []string{"x", "n"}, true)
	a.number("limit", 16, 30)
	a.number("inv", 20, 31)
	a.three("FADD S4", 15, one, one)
	a.line("loop:")
	a.load2("R0", 0)
	a.three("FMUL S4", 0, 0, 31)
	a.three("FMUL S4", 1, 1, 31)
	a.exp(2, 0, 1)
	for i := range 2 {
		a.three("FADD S4", i, i, one)
		a.three("FDIV S4", i, 15, i)
		a.three("FSUB S4", i, one, i)
		a.three("FMUL S4", i, i, 30)
	}
	a.store2("R0", 0)
	a.repeat("R1", 8)
	a.op("RET")
}

func (a *neon) expSum() {
	a.begin("expSumAsm", "lanes *lanes16, x *float32, n int, top float32", 28, []string{"lanes", "x", "n"}, true)
	a.number("top", 24, 31)
	a.op("VLD1 (R0), [V12.S4, V13.S4, V14.S4, V15.S4]")
	a.line("loop:")
	for h := range 2 {
		a.load2("R1", 0)
		a.three("FSUB S4", 0, 0, 31)
		a.three("FSUB S4", 1, 1, 31)
		a.exp(2, 0, 1)
		a.store2("R1", 0)
		a.three("FADD S4", 12+2*h, 12+2*h, 0)
		a.three("FADD S4", 13+2*h, 13+2*h, 1)
	}
	a.repeat("R2", 16)
	a.op("VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R0)")
	a.op("RET")
}

// larger replaces elements of top by larger ones of v; NaN is not larger.
func (a *neon) larger(top, v, mask int) {
	a.three("FCMGT S4", mask, v, top)
	a.op("VBIT V%d.B16, V%d.B16, V%d.B16", mask, v, top)
}

func (a *neon) maximum() {
	a.begin("maximumAsm", "x *float32, n int) (ret float32", 20, []string{"x", "n"}, false)
	for i := range 4 {
		a.splat(i, math.Float32bits(float32(math.Inf(-1))))
	}
	a.line("loop:")
	a.op("VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]")
	for i := range 4 {
		a.larger(i, 4+i, 8+i)
	}
	a.repeat("R1", 16)
	a.larger(0, 1, 8)
	a.larger(2, 3, 9)
	a.larger(0, 2, 8)
	a.two("FMAXV S4", 0, 0)
	a.op("FMOVS F0, ret+16(FP)")
	a.op("RET")
}

func (a *neon) norm() {
	a.begin("normAsm", "out, x, w *float32, n int, scale float32", 36, []string{"out", "x", "w", "n"}, false)
	a.number("scale", 32, 4)
	a.line("loop:")
	a.next2("R1", 0)
	a.next2("R2", 2)
	for i := range 2 {
		a.three("FMUL S4", i, i, 4)
		a.three("FMUL S4", i, i, 2+i)
	}
	a.store2("R0", 0)
	a.repeat("R3", 8)
	a.op("RET")
}

func (a *neon) squares() {
	a.begin("squaresAsm", "lanes *[16]float64, x *float32, n int", 24, []string{"lanes", "x", "n"}, false)
	for i := range 4 {
		a.op("FLDPQ %d(R0), (F%d, F%d)", 32*i, 16+2*i, 17+2*i)
	}
	a.line("loop:")
	a.op("VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]")
	for i := range 4 {
		a.two("FCVTL S2", 4+2*i, i)
		a.two("FCVTL2 S4", 5+2*i, i)
	}
	for i := range 8 {
		a.op("VFMLA V%d.D2, V%d.D2, V%d.D2", 4+i, 4+i, 16+i)
	}
	a.repeat("R2", 16)
	for i := range 4 {
		a.op("FSTPQ (F%d, F%d), %d(R0)", 16+2*i, 17+2*i, 32*i)
	}
	a.op("RET")
}

// simple writes add, scale, axpy and narrow.
func (a *neon) simple() {
	a.begin("addAsm", "acc, v *float32, n int", 24, []string{"acc", "v", "n"}, false)
	a.line("loop:")
	a.load2("R0", 0)
	a.next2("R1", 2)
	a.three("FADD S4", 0, 0, 2)
	a.three("FADD S4", 1, 1, 3)
	a.store2("R0", 0)
	a.repeat("R2", 8)
	a.op("RET")

	a.begin("scaleAsm", "x *float32, n int, f float32", 20, []string{"x", "n"}, false)
	a.number("f", 16, 2)
	a.line("loop:")
	a.load2("R0", 0)
	a.three("FMUL S4", 0, 0, 2)
	a.three("FMUL S4", 1, 1, 2)
	a.store2("R0", 0)
	a.repeat("R1", 8)
	a.op("RET")

	a.begin("axpyAsm", "acc, v *float32, n int, p float32", 28, []string{"acc", "v", "n"}, false)
	a.number("p", 24, 4)
	a.line("loop:")
	a.load2("R0", 0)
	a.next2("R1", 2)
	a.multiplyAdd(0, 2, 4)
	a.multiplyAdd(1, 3, 4)
	a.store2("R0", 0)
	a.repeat("R2", 8)
	a.op("RET")

	a.begin("narrowAsm", "dst *uint16, src *float32, n int", 24, []string{"dst", "src", "n"}, false)
	a.line("loop:")
	a.next2("R1", 0)
	a.two("FCVTN S4", 2, 0)
	a.two("FCVTN2 S4", 2, 1)
	a.op("FMOVQ.P F2, 16(R0)")
	a.repeat("R2", 8)
	a.op("RET")
}

// rotate computes x·cos - y·sin and x·sin + y·cos in x and y, four pairs, each product rounded.
func (a *neon) rotate(x, y, cos, sin, work int) {
	a.three("FMUL S4", work, x, cos)
	a.three("FMUL S4", work+1, y, sin)
	a.three("FMUL S4", x, x, sin)
	a.three("FMUL S4", y, y, cos)
	a.three("FADD S4", y, x, y)
	a.three("FSUB S4", x, work, work+1)
}

func (a *neon) ropes() {
	a.begin("ropeHalvesAsm", "a, b, cos, sin *float32, n int", 40, []string{"a", "b", "cos", "sin", "n"}, false)
	a.line("loop:")
	a.load2("R0", 0)
	a.load2("R1", 2)
	a.next2("R2", 4)
	a.next2("R3", 6)
	a.rotate(0, 2, 4, 6, 8)
	a.rotate(1, 3, 5, 7, 10)
	a.store2("R0", 0)
	a.store2("R1", 2)
	a.repeat("R4", 8)
	a.op("RET")

	a.begin("ropePairsAsm", "v, cos, sin *float32, n int", 32, []string{"v", "cos", "sin", "n"}, false)
	a.code(`
loop:
	VLD2 (R0), [V0.S4, V1.S4]
	FMOVQ.P 16(R1), F2
	FMOVQ.P 16(R2), F3
`)
	a.rotate(0, 1, 2, 3, 4)
	a.op("VST2.P [V0.S4, V1.S4], 32(R0)")
	a.repeat("R3", 4)
	a.op("RET")
}

// quantize rounds blocks of 32. A rounded integer is the lowest byte of a value times 127/max plus 1.5·2^23.
func (a *neon) quantize() {
	a.begin("quantizeAsm", "q *int8, b *block, x *float32, n int", 32, []string{"q", "b", "x", "n"}, false)
	a.splat(20, math.Float32bits(0x1.8p23))
	a.op("VMOVI $0x81, V21.B16") // -127
	a.code(`
	FMOVS $127.0, F22
	FMOVS ZR, F23
loop:
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
`)
	a.zero(16)
	a.zero(17)
	for i := range 8 {
		a.two("FABS S4", 8+i%4, i)
		a.larger(16+i%2, 8+i%4, 12+i%4)
	}
	a.larger(16, 17, 12)
	a.two("FMAXV S4", 16, 16)
	a.op("FDIVS F16, F22, F17") // 127/max, or 0
	a.op("FCMPS F23, F16")
	a.op("FCSELS GT, F17, F23, F17")
	a.op("FDIVS F22, F16, F16") // the scale
	for i := range 8 {
		a.element("FMUL S4", i, i, 17, 0)
	}
	for i := range 8 {
		a.three("FADD S4", i, i, 20)
	}
	for i := range 4 {
		a.op("VUZP1 V%d.H8, V%d.H8, V%d.H8", 2*i+1, 2*i, 8+i)
	}
	for i := range 2 {
		a.op("VUZP1 V%d.B16, V%d.B16, V%d.B16", 9+2*i, 8+2*i, i)
		a.three("SMAX B16", i, i, 21)
		a.two("SADDLV B16", 4+i, i)
		a.op("VMOV V%d.H[0], R%d", 4+i, 4+i)
		a.op("MOVH R%d, R%d", 4+i, 4+i)
	}
	a.store2("R0", 0)
	a.code(`
	ADDW R4, R5, R6
	SCVTFWS R6, F17
	FMULS F16, F17, F17
	FMOVS F16, (R1)
	FMOVS F17, 4(R1)
	MOVW R6, 8(R1)
	MOVH R4, 12(R1)
	MOVH R5, 14(R1)
	ADD $16, R1
`)
	a.repeat("R3", 1)
	a.op("RET")
}
