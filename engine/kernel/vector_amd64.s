#include "textflag.h"

// Eight times the same number.
#define SPLAT(name, bits) \
	DATA name<>+0(SB)/4, $bits \
	DATA name<>+4(SB)/4, $bits \
	DATA name<>+8(SB)/4, $bits \
	DATA name<>+12(SB)/4, $bits \
	DATA name<>+16(SB)/4, $bits \
	DATA name<>+20(SB)/4, $bits \
	DATA name<>+24(SB)/4, $bits \
	DATA name<>+28(SB)/4, $bits \
	GLOBL name<>(SB), RODATA|NOPTR, $32

SPLAT(expLow, 0xc2ae0000)    // -87
SPLAT(expHigh, 0x42b00000)   // 88
SPLAT(log2e, 0x3fb8aa3b)
SPLAT(expMagic, 0x4b400000)  // 1.5·2^23
SPLAT(ln2Large, 0x3f317200)
SPLAT(ln2Small, 0x35bfbe8e)
SPLAT(c5040, 0x39500d01)     // 1/5040
SPLAT(c720, 0x3ab60b61)      // 1/720
SPLAT(c120, 0x3c088889)      // 1/120
SPLAT(c24, 0x3d2aaaab)       // 1/24
SPLAT(c6, 0x3e2aaaab)        // 1/6
SPLAT(half, 0x3f000000)
SPLAT(one, 0x3f800000)
SPLAT(two, 0x40000000)
SPLAT(infinity, 0x7f800000)
SPLAT(sign, 0x80000000)
SPLAT(geluCubic, 0x3d372713) // 0.044715
SPLAT(geluScale, 0xbfcc422a) // -2·√(2/π)

// EXP is Exp of each element: Y0 to Y0. It uses Y1 to Y3.
#define EXP \
	VMOVUPS expMagic<>(SB), Y1 \
	VFMADD231PS log2e<>(SB), Y0, Y1 \
	VSUBPS expMagic<>(SB), Y1, Y2 \
	VMOVAPS Y0, Y3 \
	VFNMADD231PS ln2Large<>(SB), Y2, Y3 \
	VFNMADD231PS ln2Small<>(SB), Y2, Y3 \
	VMOVUPS c5040<>(SB), Y2 \
	VFMADD213PS c720<>(SB), Y3, Y2 \
	VFMADD213PS c120<>(SB), Y3, Y2 \
	VFMADD213PS c24<>(SB), Y3, Y2 \
	VFMADD213PS c6<>(SB), Y3, Y2 \
	VFMADD213PS half<>(SB), Y3, Y2 \
	VFMADD213PS one<>(SB), Y3, Y2 \
	VFMADD213PS one<>(SB), Y3, Y2 \
	VPSLLD $23, Y1, Y1 \
	VPADDD Y1, Y2, Y2 \
	VCMPPS $0x11, expLow<>(SB), Y0, Y1 \
	VANDNPS Y2, Y1, Y2 \
	VCMPPS $0x1e, expHigh<>(SB), Y0, Y1 \
	VBLENDVPS Y1, infinity<>(SB), Y2, Y2 \
	VCMPPS $3, Y0, Y0, Y1 \
	VBLENDVPS Y1, Y0, Y2, Y0

// func siluAsm(gate, up *float32, n int)
TEXT ·siluAsm(SB), NOSPLIT, $0-24
	MOVQ gate+0(FP), DI
	MOVQ up+8(FP), SI
	MOVQ n+16(FP), CX

silu:
	VMOVUPS (DI), Y4
	VXORPS sign<>(SB), Y4, Y0
	EXP
	VADDPS one<>(SB), Y0, Y0
	VDIVPS Y0, Y4, Y0
	VMULPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ silu
	VZEROUPPER
	RET

// func geluAsm(gate, up *float32, n int)
TEXT ·geluAsm(SB), NOSPLIT, $0-24
	MOVQ gate+0(FP), DI
	MOVQ up+8(FP), SI
	MOVQ n+16(FP), CX

gelu:
	VMOVUPS (DI), Y4
	VMULPS Y4, Y4, Y1
	VMOVUPS one<>(SB), Y2
	VFMADD231PS geluCubic<>(SB), Y1, Y2
	VMULPS geluScale<>(SB), Y4, Y0
	VMULPS Y2, Y0, Y0
	EXP
	VADDPS one<>(SB), Y0, Y0
	VDIVPS Y0, Y4, Y0
	VMULPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ gelu
	VZEROUPPER
	RET

// func softcapAsm(x *float32, n int, limit, inv float32)
TEXT ·softcapAsm(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX
	VBROADCASTSS limit+16(FP), Y5
	VBROADCASTSS inv+20(FP), Y6

softcap:
	VMULPS (DI), Y6, Y0
	EXP
	VADDPS one<>(SB), Y0, Y0
	VMOVUPS two<>(SB), Y1
	VDIVPS Y0, Y1, Y0
	VMOVUPS one<>(SB), Y1
	VSUBPS Y0, Y1, Y0
	VMULPS Y5, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ softcap
	VZEROUPPER
	RET

// func expSumAsm(lanes *[16]float32, x *float32, n int, top float32)
TEXT ·expSumAsm(SB), NOSPLIT, $0-28
	MOVQ lanes+0(FP), DX
	MOVQ x+8(FP), DI
	MOVQ n+16(FP), CX
	VBROADCASTSS top+24(FP), Y6
	VMOVUPS (DX), Y4
	VMOVUPS 32(DX), Y5

expsum:
	VMOVUPS (DI), Y0
	VSUBPS Y6, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	VADDPS Y0, Y4, Y4
	VMOVUPS 32(DI), Y0
	VSUBPS Y6, Y0, Y0
	EXP
	VMOVUPS Y0, 32(DI)
	VADDPS Y0, Y5, Y5
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ expsum
	VMOVUPS Y4, (DX)
	VMOVUPS Y5, 32(DX)
	VZEROUPPER
	RET

// func maximumAsm(x *float32, n int) float32
TEXT ·maximumAsm(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VMOVUPS infinity<>(SB), Y0
	VXORPS sign<>(SB), Y0, Y0
	VMOVAPS Y0, Y1

	// VMAXPS gives its second operand, Go's first, where one is not a number.
maximum:
	VMOVUPS (SI), Y2
	VMAXPS Y0, Y2, Y0
	VMOVUPS 32(SI), Y2
	VMAXPS Y1, Y2, Y1
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ maximum
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0xb1, X0, X1
	VMAXPS X1, X0, X0
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func normAsm(out, x, w *float32, n int, scale float32)
TEXT ·normAsm(SB), NOSPLIT, $0-36
	MOVQ out+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ w+16(FP), DX
	MOVQ n+24(FP), CX
	VBROADCASTSS scale+32(FP), Y1

norm:
	VMULPS (SI), Y1, Y0
	VMULPS (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ norm
	VZEROUPPER
	RET

// func squaresAsm(lanes *[16]float64, x *float32, n int)
TEXT ·squaresAsm(SB), NOSPLIT, $0-24
	MOVQ lanes+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	VMOVUPS 64(DX), Y2
	VMOVUPS 96(DX), Y3

squares:
	VCVTPS2PD (SI), Y4
	VCVTPS2PD 16(SI), Y5
	VCVTPS2PD 32(SI), Y6
	VCVTPS2PD 48(SI), Y7
	VFMADD231PD Y4, Y4, Y0
	VFMADD231PD Y5, Y5, Y1
	VFMADD231PD Y6, Y6, Y2
	VFMADD231PD Y7, Y7, Y3
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ squares
	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VMOVUPS Y2, 64(DX)
	VMOVUPS Y3, 96(DX)
	VZEROUPPER
	RET

// func addAsm(acc, v *float32, n int)
TEXT ·addAsm(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ v+8(FP), SI
	MOVQ n+16(FP), CX

add:
	VMOVUPS (DI), Y0
	VADDPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ add
	VZEROUPPER
	RET

// func scaleAsm(x *float32, n int, f float32)
TEXT ·scaleAsm(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX
	VBROADCASTSS f+16(FP), Y1

scale:
	VMULPS (DI), Y1, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ scale
	VZEROUPPER
	RET

// func axpyAsm(acc, v *float32, n int, p float32)
TEXT ·axpyAsm(SB), NOSPLIT, $0-28
	MOVQ acc+0(FP), DI
	MOVQ v+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS p+24(FP), Y1

axpy:
	VMOVUPS (DI), Y0
	VFMADD231PS (SI), Y1, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ axpy
	VZEROUPPER
	RET

// func narrowAsm(dst *uint16, src *float32, n int)
TEXT ·narrowAsm(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

narrow:
	VMOVUPS (SI), Y0
	VCVTPS2PH $0, Y0, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNZ narrow
	VZEROUPPER
	RET

// func ropeHalvesAsm(a, b, cos, sin *float32, n int)
TEXT ·ropeHalvesAsm(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), CX

halves:
	VMOVUPS (DI), Y0
	VMOVUPS (SI), Y1
	VMOVUPS (R8), Y2
	VMOVUPS (R9), Y3
	VMULPS Y2, Y0, Y4 // x·cos
	VMULPS Y3, Y1, Y5 // y·sin
	VSUBPS Y5, Y4, Y4
	VMOVUPS Y4, (DI)
	VMULPS Y3, Y0, Y4
	VMULPS Y2, Y1, Y5
	VADDPS Y5, Y4, Y4
	VMOVUPS Y4, (SI)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, R8
	ADDQ $32, R9
	SUBQ $8, CX
	JNZ halves
	VZEROUPPER
	RET

// func ropePairsAsm(v, cos, sin *float32, n int)
TEXT ·ropePairsAsm(SB), NOSPLIT, $0-32
	MOVQ v+0(FP), DI
	MOVQ cos+8(FP), R8
	MOVQ sin+16(FP), R9
	MOVQ n+24(FP), CX

pairs:
	VMOVUPS (DI), Y0         // x y x y …
	VPERMILPS $0xb1, Y0, Y1  // y x y x …
	VPMOVZXDQ (R8), Y2
	VPMOVZXDQ (R9), Y3
	VMOVSLDUP Y2, Y2         // each cosine twice
	VMOVSLDUP Y3, Y3
	VMULPS Y2, Y0, Y0
	VMULPS Y3, Y1, Y1
	VADDSUBPS Y1, Y0, Y0     // x·cos - y·sin, y·cos + x·sin
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $16, R8
	ADDQ $16, R9
	SUBQ $4, CX
	JNZ pairs
	VZEROUPPER
	RET
