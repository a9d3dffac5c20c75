#include "textflag.h"
#include "neon_arm64.h"

// Functions of rows. Each does the same as its namesake in plain Go. Lengths are multiples of 8; of 16 with 16 lanes or
// a maximum, of 4 for pairs.

// What Exp needs, each four times: in V16 to V29. V30 and V31 are each function's own.
#define FOUR(low, high, bits) \
	DATA exp<>+low(SB)/8, $bits \
	DATA exp<>+high(SB)/8, $bits

FOUR(0, 8, 0xc2ae0000c2ae0000)     // -87
FOUR(16, 24, 0x42b0000042b00000)   // 88
FOUR(32, 40, 0x3fb8aa3b3fb8aa3b)   // log2(e)
FOUR(48, 56, 0x4b4000004b400000)   // 1.5·2^23
FOUR(64, 72, 0x3f3172003f317200)   // ln(2), the larger part
FOUR(80, 88, 0x35bfbe8e35bfbe8e)   // the smaller part
FOUR(96, 104, 0x39500d0139500d01)  // 1/5040
FOUR(112, 120, 0x3ab60b613ab60b61) // 1/720
FOUR(128, 136, 0x3c0888893c088889) // 1/120
FOUR(144, 152, 0x3d2aaaab3d2aaaab) // 1/24
FOUR(160, 168, 0x3e2aaaab3e2aaaab) // 1/6
FOUR(176, 184, 0x3f0000003f000000) // 1/2
FOUR(192, 200, 0x3f8000003f800000) // 1
FOUR(208, 216, 0x7f8000007f800000) // infinity
GLOBL exp<>(SB), RODATA|NOPTR, $224

#define LOWEST   16
#define HIGHEST  17
#define LOG2E    18
#define MAGIC    19
#define LN2LARGE 20
#define LN2SMALL 21
#define C5040    22
#define C720     23
#define C120     24
#define C24      25
#define C6       26
#define HALF     27
#define ONE      28
#define INFINITY 29

// CONSTANTS loads them.
#define CONSTANTS \
	MOVD $exp<>(SB), R20 \
	FLDPQ 0(R20), (F16, F17) \
	FLDPQ 32(R20), (F18, F19) \
	FLDPQ 64(R20), (F20, F21) \
	FLDPQ 96(R20), (F22, F23) \
	FLDPQ 128(R20), (F24, F25) \
	FLDPQ 160(R20), (F26, F27) \
	FLDPQ 192(R20), (F28, F29)

// EXP replaces the registers x and x+1 by Exp of their elements. It uses eight others, from w on.
#define EXP(x, w) \
	MOV16B(w, MAGIC) \
	MOV16B(w+1, x) \
	MOV16B(w+4, MAGIC) \
	MOV16B(w+5, x+1) \
	FMLA4S(w, x, LOG2E) \
	FMLA4S(w+4, x+1, LOG2E) \
	FSUB4S(w+2, w, MAGIC) \
	FSUB4S(w+6, w+4, MAGIC) \
	FMLS4S(w+1, w+2, LN2LARGE) \
	FMLS4S(w+5, w+6, LN2LARGE) \
	FMLS4S(w+1, w+2, LN2SMALL) \
	FMLS4S(w+5, w+6, LN2SMALL) \
	MOV16B(w+2, C720) \
	FMLA4S(w+2, C5040, w+1) \
	MOV16B(w+6, C720) \
	FMLA4S(w+6, C5040, w+5) \
	POWER(w, C120, 2, 3) \
	POWER(w, C24, 3, 2) \
	POWER(w, C6, 2, 3) \
	POWER(w, HALF, 3, 2) \
	POWER(w, ONE, 2, 3) \
	POWER(w, ONE, 3, 2) \
	SHL4S(w, w, 23) \
	SHL4S(w+4, w+4, 23) \
	ADD4S(w+2, w+2, w) \
	ADD4S(w+6, w+6, w+4) \
	FCMGE4S(w, x, LOWEST) \
	FCMGT4S(w+3, x, HIGHEST) \
	FCMGE4S(w+4, x+1, LOWEST) \
	FCMGT4S(w+7, x+1, HIGHEST) \
	AND16B(w+2, w+2, w) \
	AND16B(w+6, w+6, w+4) \
	FCMEQ4S(w, x, x) \
	FCMEQ4S(w+4, x+1, x+1) \
	BIT16B(w+2, INFINITY, w+3) \
	BIT16B(w+6, INFINITY, w+7) \
	BIT16B(x, w+2, w) \
	BIT16B(x+1, w+6, w+4)

// POWER multiplies the sums in w+from and w+4+from by w+1 and w+5, and adds c: in w+to and w+4+to.
#define POWER(w, c, from, to) \
	MOV16B(w+to, c) \
	MOV16B(w+4+to, c) \
	FMLA4S(w+to, w+from, w+1) \
	FMLA4S(w+4+to, w+4+from, w+5)

// SIGMOID divides V0 and V1 by 1 plus Exp of V4 and V5, and multiplies them by the values at R1: to R0.
#define SIGMOID \
	EXP(4, 6) \
	FLDPQ.P 32(R1), (F6, F7) \
	FADD4S(4, 4, ONE) \
	FADD4S(5, 5, ONE) \
	FDIV4S(0, 0, 4) \
	FDIV4S(1, 1, 5) \
	FMUL4S(0, 0, 6) \
	FMUL4S(1, 1, 7) \
	FSTPQ.P (F0, F1), 32(R0)

// func siluAsm(gate, up *float32, n int)
TEXT ·siluAsm(SB), NOSPLIT, $0-24
	MOVD gate+0(FP), R0
	MOVD up+8(FP), R1
	MOVD n+16(FP), R2
	CONSTANTS
loop:
	FLDPQ (R0), (F0, F1)
	FNEG4S(4, 0)
	FNEG4S(5, 1)
	SIGMOID
	SUBS $8, R2, R2
	BNE loop
	RET

// func geluAsm(gate, up *float32, n int)
TEXT ·geluAsm(SB), NOSPLIT, $0-24
	MOVD gate+0(FP), R0
	MOVD up+8(FP), R1
	MOVD n+16(FP), R2
	CONSTANTS
	MOVW $0x3d372713, R19 // 0.044715
	VDUP R19, V30.S4
	MOVW $0xbfcc422a, R19 // -2·√(2/π)
	VDUP R19, V31.S4
loop:
	FLDPQ (R0), (F0, F1)
	FMUL4S(2, 0, 0)
	MOV16B(6, ONE)
	FMUL4S(4, 0, 31)
	FMLA4S(6, 2, 30)
	FMUL4S(4, 4, 6)
	FMUL4S(3, 1, 1)
	MOV16B(7, ONE)
	FMUL4S(5, 1, 31)
	FMLA4S(7, 3, 30)
	FMUL4S(5, 5, 7)
	SIGMOID
	SUBS $8, R2, R2
	BNE loop
	RET

#define CAP(x) \
	FADD4S(x, x, ONE) \
	FDIV4S(x, 15, x) \
	FSUB4S(x, ONE, x) \
	FMUL4S(x, x, 30)

// func softcapAsm(x *float32, n int, limit, inv float32)
TEXT ·softcapAsm(SB), NOSPLIT, $0-24
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	CONSTANTS
	FMOVS limit+16(FP), F30
	VDUP V30.S[0], V30.S4
	FMOVS inv+20(FP), F31
	VDUP V31.S[0], V31.S4
	FADD4S(15, ONE, ONE)
loop:
	FLDPQ (R0), (F0, F1)
	FMUL4S(0, 0, 31)
	FMUL4S(1, 1, 31)
	EXP(0, 2)
	CAP(0)
	CAP(1)
	FSTPQ.P (F0, F1), 32(R0)
	SUBS $8, R1, R1
	BNE loop
	RET

// EXPSUM replaces eight values by Exp of them less V31, and adds them to sum and sum+1.
#define EXPSUM(sum) \
	FLDPQ (R1), (F0, F1) \
	FSUB4S(0, 0, 31) \
	FSUB4S(1, 1, 31) \
	EXP(0, 2) \
	FSTPQ.P (F0, F1), 32(R1) \
	FADD4S(sum, sum, 0) \
	FADD4S(sum+1, sum+1, 1)

// func expSumAsm(lanes *lanes16, x *float32, n int, top float32)
TEXT ·expSumAsm(SB), NOSPLIT, $0-28
	MOVD lanes+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R2
	CONSTANTS
	FMOVS top+24(FP), F31
	VDUP V31.S[0], V31.S4
	VLD1 (R0), [V12.S4, V13.S4, V14.S4, V15.S4]
loop:
	EXPSUM(12)
	EXPSUM(14)
	SUBS $16, R2, R2
	BNE loop
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R0)
	RET

// LARGER replaces elements of top by larger ones of v; NaN is not larger.
#define LARGER(top, v, mask) \
	FCMGT4S(mask, v, top) \
	BIT16B(top, v, mask)

// func maximumAsm(x *float32, n int) (ret float32)
TEXT ·maximumAsm(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	MOVW $0xff800000, R19 // -infinity
	VDUP R19, V0.S4
	MOVW $0xff800000, R19
	VDUP R19, V1.S4
	MOVW $0xff800000, R19
	VDUP R19, V2.S4
	MOVW $0xff800000, R19
	VDUP R19, V3.S4
loop:
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	LARGER(0, 4, 8)
	LARGER(1, 5, 9)
	LARGER(2, 6, 10)
	LARGER(3, 7, 11)
	SUBS $16, R1, R1
	BNE loop
	LARGER(0, 1, 8)
	LARGER(2, 3, 9)
	LARGER(0, 2, 8)
	FMAXV4S(0, 0)
	FMOVS F0, ret+16(FP)
	RET

// func normAsm(out, x, w *float32, n int, scale float32)
TEXT ·normAsm(SB), NOSPLIT, $0-36
	MOVD out+0(FP), R0
	MOVD x+8(FP), R1
	MOVD w+16(FP), R2
	MOVD n+24(FP), R3
	FMOVS scale+32(FP), F4
	VDUP V4.S[0], V4.S4
loop:
	FLDPQ.P 32(R1), (F0, F1)
	FLDPQ.P 32(R2), (F2, F3)
	FMUL4S(0, 0, 4)
	FMUL4S(0, 0, 2)
	FMUL4S(1, 1, 4)
	FMUL4S(1, 1, 3)
	FSTPQ.P (F0, F1), 32(R0)
	SUBS $8, R3, R3
	BNE loop
	RET

// func squaresAsm(lanes *[16]float64, x *float32, n int)
TEXT ·squaresAsm(SB), NOSPLIT, $0-24
	MOVD lanes+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R2
	FLDPQ 0(R0), (F16, F17)
	FLDPQ 32(R0), (F18, F19)
	FLDPQ 64(R0), (F20, F21)
	FLDPQ 96(R0), (F22, F23)
loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	FCVTL2S(4, 0)
	FCVTL4S(5, 0)
	FCVTL2S(6, 1)
	FCVTL4S(7, 1)
	FCVTL2S(8, 2)
	FCVTL4S(9, 2)
	FCVTL2S(10, 3)
	FCVTL4S(11, 3)
	FMLA2D(16, 4, 4)
	FMLA2D(17, 5, 5)
	FMLA2D(18, 6, 6)
	FMLA2D(19, 7, 7)
	FMLA2D(20, 8, 8)
	FMLA2D(21, 9, 9)
	FMLA2D(22, 10, 10)
	FMLA2D(23, 11, 11)
	SUBS $16, R2, R2
	BNE loop
	FSTPQ (F16, F17), 0(R0)
	FSTPQ (F18, F19), 32(R0)
	FSTPQ (F20, F21), 64(R0)
	FSTPQ (F22, F23), 96(R0)
	RET

// func addAsm(acc, v *float32, n int)
TEXT ·addAsm(SB), NOSPLIT, $0-24
	MOVD acc+0(FP), R0
	MOVD v+8(FP), R1
	MOVD n+16(FP), R2
loop:
	FLDPQ (R0), (F0, F1)
	FLDPQ.P 32(R1), (F2, F3)
	FADD4S(0, 0, 2)
	FADD4S(1, 1, 3)
	FSTPQ.P (F0, F1), 32(R0)
	SUBS $8, R2, R2
	BNE loop
	RET

// func scaleAsm(x *float32, n int, f float32)
TEXT ·scaleAsm(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	FMOVS f+16(FP), F2
	VDUP V2.S[0], V2.S4
loop:
	FLDPQ (R0), (F0, F1)
	FMUL4S(0, 0, 2)
	FMUL4S(1, 1, 2)
	FSTPQ.P (F0, F1), 32(R0)
	SUBS $8, R1, R1
	BNE loop
	RET

// func axpyAsm(acc, v *float32, n int, p float32)
TEXT ·axpyAsm(SB), NOSPLIT, $0-28
	MOVD acc+0(FP), R0
	MOVD v+8(FP), R1
	MOVD n+16(FP), R2
	FMOVS p+24(FP), F4
	VDUP V4.S[0], V4.S4
loop:
	FLDPQ (R0), (F0, F1)
	FLDPQ.P 32(R1), (F2, F3)
	FMLA4S(0, 2, 4)
	FMLA4S(1, 3, 4)
	FSTPQ.P (F0, F1), 32(R0)
	SUBS $8, R2, R2
	BNE loop
	RET

// func narrowAsm(dst *uint16, src *float32, n int)
TEXT ·narrowAsm(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
loop:
	FLDPQ.P 32(R1), (F0, F1)
	FCVTN4H(2, 0)
	FCVTN8H(2, 1)
	FMOVQ.P F2, 16(R0)
	SUBS $8, R2, R2
	BNE loop
	RET

// ROTATE computes x·cos - y·sin and x·sin + y·cos in x and y, four pairs, each product rounded.
#define ROTATE(x, y, cos, sin, work) \
	FMUL4S(work, x, cos) \
	FMUL4S(work+1, y, sin) \
	FMUL4S(x, x, sin) \
	FMUL4S(y, y, cos) \
	FADD4S(y, x, y) \
	FSUB4S(x, work, work+1)

// func ropeHalvesAsm(a, b, cos, sin *float32, n int)
TEXT ·ropeHalvesAsm(SB), NOSPLIT, $0-40
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	MOVD cos+16(FP), R2
	MOVD sin+24(FP), R3
	MOVD n+32(FP), R4
loop:
	FLDPQ (R0), (F0, F1)
	FLDPQ (R1), (F2, F3)
	FLDPQ.P 32(R2), (F4, F5)
	FLDPQ.P 32(R3), (F6, F7)
	ROTATE(0, 2, 4, 6, 8)
	ROTATE(1, 3, 5, 7, 10)
	FSTPQ.P (F0, F1), 32(R0)
	FSTPQ.P (F2, F3), 32(R1)
	SUBS $8, R4, R4
	BNE loop
	RET

// func ropePairsAsm(v, cos, sin *float32, n int)
TEXT ·ropePairsAsm(SB), NOSPLIT, $0-32
	MOVD v+0(FP), R0
	MOVD cos+8(FP), R1
	MOVD sin+16(FP), R2
	MOVD n+24(FP), R3
loop:
	VLD2 (R0), [V0.S4, V1.S4]
	FMOVQ.P 16(R1), F2
	FMOVQ.P 16(R2), F3
	ROTATE(0, 1, 2, 3, 4)
	VST2.P [V0.S4, V1.S4], 32(R0)
	SUBS $4, R3, R3
	BNE loop
	RET

#define LARGEST(top, x, abs, mask) \
	FABS4S(abs, x) \
	LARGER(top, abs, mask)

// quantizeAsm rounds blocks of 32. A rounded integer is the lowest byte of a value times 127/max plus 1.5·2^23.
//
// func quantizeAsm(q *int8, b *block, x *float32, n int)
TEXT ·quantizeAsm(SB), NOSPLIT, $0-32
	MOVD q+0(FP), R0
	MOVD b+8(FP), R1
	MOVD x+16(FP), R2
	MOVD n+24(FP), R3
	MOVW $0x4b400000, R19
	VDUP R19, V20.S4
	VMOVI $0x81, V21.B16 // -127
	FMOVS $127.0, F22
	FMOVS ZR, F23
loop:
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	LARGEST(16, 0, 8, 12)
	LARGEST(17, 1, 9, 13)
	LARGEST(16, 2, 10, 14)
	LARGEST(17, 3, 11, 15)
	LARGEST(16, 4, 8, 12)
	LARGEST(17, 5, 9, 13)
	LARGEST(16, 6, 10, 14)
	LARGEST(17, 7, 11, 15)
	LARGER(16, 17, 12)
	FMAXV4S(16, 16)
	FDIVS F16, F22, F17 // 127/max, or 0
	FCMPS F23, F16
	FCSELS GT, F17, F23, F17
	FDIVS F22, F16, F16 // the scale
	FMUL4SE(0, 0, 17, 0)
	FMUL4SE(1, 1, 17, 0)
	FMUL4SE(2, 2, 17, 0)
	FMUL4SE(3, 3, 17, 0)
	FMUL4SE(4, 4, 17, 0)
	FMUL4SE(5, 5, 17, 0)
	FMUL4SE(6, 6, 17, 0)
	FMUL4SE(7, 7, 17, 0)
	FADD4S(0, 0, 20)
	FADD4S(1, 1, 20)
	FADD4S(2, 2, 20)
	FADD4S(3, 3, 20)
	FADD4S(4, 4, 20)
	FADD4S(5, 5, 20)
	FADD4S(6, 6, 20)
	FADD4S(7, 7, 20)
	VUZP1 V1.H8, V0.H8, V8.H8
	VUZP1 V3.H8, V2.H8, V9.H8
	VUZP1 V5.H8, V4.H8, V10.H8
	VUZP1 V7.H8, V6.H8, V11.H8
	VUZP1 V9.B16, V8.B16, V0.B16
	SMAX16B(0, 0, 21)
	SADDLV16B(4, 0)
	VMOV V4.H[0], R4
	MOVH R4, R4
	VUZP1 V11.B16, V10.B16, V1.B16
	SMAX16B(1, 1, 21)
	SADDLV16B(5, 1)
	VMOV V5.H[0], R5
	MOVH R5, R5
	FSTPQ.P (F0, F1), 32(R0)
	ADDW R4, R5, R6
	SCVTFWS R6, F17
	FMULS F16, F17, F17
	FMOVS F16, (R1)
	FMOVS F17, 4(R1)
	MOVW R6, 8(R1)
	MOVH R4, 12(R1)
	MOVH R5, 14(R1)
	ADD $16, R1
	SUBS $1, R3, R3
	BNE loop
	RET
