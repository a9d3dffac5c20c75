#include "textflag.h"
#include "neon_arm64.h"

// The products of attention. A block of the cache has its keys as [d][16] halves and its values as [16][d]; four
// registers hold a row of keys, or 16 dimensions of a value, as floats. scores1 and mix1 are for one query, the others
// for four, whose scores and weights are 1,024 bytes apart.
//
//	R0  results                  R1  queries, or weights       R2  the cache
//	R3  numbers of blocks        R4  blocks to go              R5  bytes from a block of the cache to the next
//	R6  dimensions               R8  the block's next row      R9  rows, or dimensions, to go

#define ARGS \
	MOVD a_to+0(FP), R0 \
	MOVD a_from+8(FP), R1 \
	MOVD a_cache+16(FP), R2 \
	MOVD a_blocks+24(FP), R3 \
	MOVD a_n+32(FP), R4 \
	MOVD a_stride+40(FP), R5 \
	MOVD a_d+48(FP), R6

// BLOCK sets R8 to the address of the next block.
#define BLOCK \
	MOVW.P 4(R3), R8 \
	MADD R8, R2, R5, R8

// ROW converts 16 halves in d+1 and d+2 to floats in d to d+3.
#define ROW(d) \
	FCVTL8H(d+3, d+2) \
	FCVTL4H(d, d+1) \
	FCVTL8H(d+1, d+1) \
	FCVTL4H(d+2, d+2)

// PRODUCTS adds the products of the registers x to x+3 with the first element of another to sum to sum+3.
#define PRODUCTS(sum, x, of) \
	FMLA4SE(sum, x, of, 0) \
	FMLA4SE(sum+1, x+1, of, 0) \
	FMLA4SE(sum+2, x+2, of, 0) \
	FMLA4SE(sum+3, x+3, of, 0)

// PRODUCTS4 adds those with four others to the first sixteen.
#define PRODUCTS4 \
	PRODUCTS(0, 16, 20) \
	PRODUCTS(4, 16, 21) \
	PRODUCTS(8, 16, 22) \
	PRODUCTS(12, 16, 23)

#define ADD4(sum) \
	FADD4S(sum, 16, sum) \
	FADD4S(sum+1, 17, sum+1) \
	FADD4S(sum+2, 18, sum+2) \
	FADD4S(sum+3, 19, sum+3)

#define ZERO8 \
	VEOR V0.B16, V0.B16, V0.B16 \
	VEOR V1.B16, V1.B16, V1.B16 \
	VEOR V2.B16, V2.B16, V2.B16 \
	VEOR V3.B16, V3.B16, V3.B16 \
	VEOR V4.B16, V4.B16, V4.B16 \
	VEOR V5.B16, V5.B16, V5.B16 \
	VEOR V6.B16, V6.B16, V6.B16 \
	VEOR V7.B16, V7.B16, V7.B16

#define ZERO16 \
	ZERO8 \
	VEOR V8.B16, V8.B16, V8.B16 \
	VEOR V9.B16, V9.B16, V9.B16 \
	VEOR V10.B16, V10.B16, V10.B16 \
	VEOR V11.B16, V11.B16, V11.B16 \
	VEOR V12.B16, V12.B16, V12.B16 \
	VEOR V13.B16, V13.B16, V13.B16 \
	VEOR V14.B16, V14.B16, V14.B16 \
	VEOR V15.B16, V15.B16, V15.B16

// scores1 sums the two halves of the dimensions side by side.
//
// func scores1(a attendArgs)
TEXT ·scores1(SB), NOSPLIT, $0-64
	ARGS
	LSR $1, R6, R6 // rows in a half
scores1:
	BLOCK
	ADD R6<<5, R8, R10 // the second half's rows
	MOVD R1, R11
	ADD R6<<2, R1, R12
	MOVD R6, R9
	ZERO8
scores1row:
	VLD1.P 32(R8), [V17.H8, V18.H8]
	FMOVS.P 4(R11), F20
	ROW(16)
	PRODUCTS(0, 16, 20)
	VLD1.P 32(R10), [V25.H8, V26.H8]
	FMOVS.P 4(R12), F28
	ROW(24)
	PRODUCTS(4, 24, 28)
	SUBS $1, R9, R9
	BNE scores1row
	FADD4S(0, 0, 4)
	FADD4S(1, 1, 5)
	FADD4S(2, 2, 6)
	FADD4S(3, 3, 7)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS $1, R4, R4
	BNE scores1
	RET

// QUERIES loads the next number of each query.
#define QUERIES \
	VLD1.P 32(R8), [V17.H8, V18.H8] \
	FMOVS.P 4(R11), F20 \
	FMOVS.P 4(R12), F21 \
	FMOVS.P 4(R13), F22 \
	FMOVS.P 4(R14), F23

// scores4 sums one half of the dimensions after the other: the first half's sums are kept in the results.
//
// func scores4(a attendArgs)
TEXT ·scores4(SB), NOSPLIT, $0-64
	ARGS
	LSR $1, R6, R7 // rows in a half
	ADD $1024, R0, R19
	ADD $1024, R19, R20
	ADD $1024, R20, R21
scores4:
	BLOCK
	MOVD R1, R11
	ADD R6<<2, R11, R12
	ADD R6<<2, R12, R13
	ADD R6<<2, R13, R14
	MOVD R7, R9
	ZERO16
scores4first:
	QUERIES
	ROW(16)
	PRODUCTS4
	SUBS $1, R9, R9
	BNE scores4first
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R19)
	VST1 [V8.S4, V9.S4, V10.S4, V11.S4], (R20)
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R21)
	MOVD R7, R9
	ZERO16
scores4second:
	QUERIES
	ROW(16)
	PRODUCTS4
	SUBS $1, R9, R9
	BNE scores4second
	VLD1 (R0), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD4(0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	VLD1 (R19), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD4(4)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R19)
	VLD1 (R20), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD4(8)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R20)
	VLD1 (R21), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD4(12)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R21)
	SUBS $1, R4, R4
	BNE scores4
	RET

// MIX adds the products of 16 dimensions at an offset of the value with the weight V24.
#define MIX(at, sum) \
	FLDPQ at(R11), (F17, F18) \
	ROW(16) \
	PRODUCTS(sum, 16, 24)

// MIXODD does the same in other registers.
#define MIXODD(at, sum) \
	FLDPQ at(R11), (F21, F22) \
	ROW(20) \
	PRODUCTS(sum, 20, 24)

// mix1 processes 64 dimensions at a time, then 16.
//
// func mix1(a attendArgs)
TEXT ·mix1(SB), NOSPLIT, $0-64
	ARGS
	MOVD a_rows+56(FP), R7
mix1:
	BLOCK
	MOVD R0, R10
	MOVD R6, R9
mix1by64:
	CMP $64, R9
	BLT mix1no64
	FLDPQ 0(R10), (F0, F1)
	FLDPQ 32(R10), (F2, F3)
	FLDPQ 64(R10), (F4, F5)
	FLDPQ 96(R10), (F6, F7)
	FLDPQ 128(R10), (F8, F9)
	FLDPQ 160(R10), (F10, F11)
	FLDPQ 192(R10), (F12, F13)
	FLDPQ 224(R10), (F14, F15)
	MOVD R8, R11
	MOVD R1, R12
	MOVD R7, R13
mix1row64:
	FMOVS.P 4(R12), F24
	MIX(0, 0)
	MIXODD(32, 4)
	MIX(64, 8)
	MIXODD(96, 12)
	ADD R6<<1, R11
	SUBS $1, R13, R13
	BNE mix1row64
	FSTPQ.P (F0, F1), 32(R10)
	FSTPQ.P (F2, F3), 32(R10)
	FSTPQ.P (F4, F5), 32(R10)
	FSTPQ.P (F6, F7), 32(R10)
	FSTPQ.P (F8, F9), 32(R10)
	FSTPQ.P (F10, F11), 32(R10)
	FSTPQ.P (F12, F13), 32(R10)
	FSTPQ.P (F14, F15), 32(R10)
	ADD $128, R8
	SUB $64, R9
	JMP mix1by64
mix1no64:
mix1by16:
	CMP $16, R9
	BLT mix1no16
	FLDPQ 0(R10), (F0, F1)
	FLDPQ 32(R10), (F2, F3)
	MOVD R8, R11
	MOVD R1, R12
	MOVD R7, R13
mix1row16:
	FMOVS.P 4(R12), F24
	MIX(0, 0)
	ADD R6<<1, R11
	SUBS $1, R13, R13
	BNE mix1row16
	FSTPQ.P (F0, F1), 32(R10)
	FSTPQ.P (F2, F3), 32(R10)
	ADD $32, R8
	SUB $16, R9
	JMP mix1by16
mix1no16:
	ADD $64, R1
	SUBS $1, R4, R4
	BNE mix1
	RET

// mix4 processes 16 dimensions at a time.
//
// func mix4(a attendArgs)
TEXT ·mix4(SB), NOSPLIT, $0-64
	ARGS
mix4:
	BLOCK
	MOVD R0, R10
	ADD R6<<2, R10, R19
	ADD R6<<2, R19, R20
	ADD R6<<2, R20, R21
	MOVD R6, R9
mix4by16:
	VLD1 (R10), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R19), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1 (R20), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1 (R21), [V12.S4, V13.S4, V14.S4, V15.S4]
	MOVD R8, R11
	MOVD R1, R12
	ADD $64, R1, R13
mix4row:
	FLDPQ (R11), (F17, F18)
	FMOVS 0(R12), F20
	FMOVS 1024(R12), F21
	FMOVS 2048(R12), F22
	FMOVS 3072(R12), F23
	ROW(16)
	PRODUCTS4
	ADD R6<<1, R11
	ADD $4, R12
	CMP R13, R12
	BNE mix4row
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R10)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R19)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R20)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R21)
	ADD $32, R8
	SUBS $16, R9, R9
	BNE mix4by16
	ADD $64, R1
	SUBS $1, R4, R4
	BNE mix4
	RET
