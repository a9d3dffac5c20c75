#include "textflag.h"
#include "neon_arm64.h"

// Products of a tile with one or four vectors. plainInts and plainFloats define the results, to the bit. A register holds
// four rows. SDOT, by element, adds four products of weights with four shared activations to 32-bit sums. Weights of up to
// six bits pass for signed; weights of 8 bits become signed by a flip of their highest bit. The sums' initial values
// subtract the offset of the weights.
//
//	R0  results [tokens][16] float32   R1       the tile's current block
//	R2  the first vector, R9 to R11 more  R3, R5   bytes from a vector to the next, and between their blocks' scales
//	R4  its scales, R12 to R14 more    R6       blocks, or columns, to go
//	R7, R8  a block's head, parts to go
//
// With one vector, all 16 rows are one pass:
//
//	V0  the block's scale, its sum, its total and halves     V1, V2  activations
//	V3 to V6  integer sums    V7 to V10  those of Q6_K's last 16 columns    V11 to V14  float sums
//	V15  low four bits        V16  higher bits     V17  minus the offset of the weights
//	V18 to V21  weights       V22 to V25  higher bits, scales     V26 to V31  work
//
// With four vectors a pass has eight rows, of Q6_K four. The float sums are in the results:
//
//	V0 to V3  as V0 above     V4 to V7  activations and integer sums of the first, V8 to V19 of the others
//	V20  low four bits        V21  higher bits, or minus the offset
//	V22, V23  weights         V24, V25  higher bits, scales       V26 to V31  work

#define ARGS \
	MOVD a_acc+0(FP), R0 \
	MOVD a_w+8(FP), R1 \
	MOVD a_x+16(FP), R2 \
	MOVD a_xs+24(FP), R3

#define INTARGS \
	ARGS \
	MOVD a_b+32(FP), R4 \
	MOVD a_bs+40(FP), R5 \
	MOVD a_n+48(FP), R6

// Twice the values of MXFP4's codes.
DATA values<>+0(SB)/8, $0x0c08060403020100
DATA values<>+8(SB)/8, $0xf4f8fafcfdfeff00
GLOBL values<>(SB), RODATA|NOPTR, $16

#define ZERO(acc, b) EOR16B(acc, acc, acc)

// These put bits above the low four into w, by way of t.
#define LEFT4(w, from, t, mask) \
	SHL16B(t, from, 4) \
	BIT16B(w, t, mask)

#define LEFT3(w, from, t, mask) \
	SHL16B(t, from, 3) \
	BIT16B(w, t, mask)

#define LEFT2(w, from, t, mask) \
	SHL16B(t, from, 2) \
	BIT16B(w, t, mask)

#define LEFT1(w, from, t, mask) \
	SHL16B(t, from, 1) \
	BIT16B(w, t, mask)

#define SAME(w, from, t, mask) \
	BIT16B(w, from, mask)

#define RIGHT1(w, from, t, mask) \
	USHR16B(t, from, 1) \
	BIT16B(w, t, mask)

#define RIGHT2(w, from, t, mask) \
	USHR16B(t, from, 2) \
	BIT16B(w, t, mask)

#define RIGHT3(w, from, t, mask) \
	USHR16B(t, from, 3) \
	BIT16B(w, t, mask)

// The macros up to FLOATS use others that are defined twice, for one vector and for four: BEGIN clears the sums, FETCH loads
// activations, WEIGHTS and QUADS load and multiply the weights of a pass, the others work on its sums; PASSES does a step
// for each pass.

#define ZEROED(p)     EACHSUM(ZERO)
#define OFFSETPASS(p) EACHSUM(OFFSET)

#define EIGHTBITS(p, g, x, e) \
	WEIGHTS(64*g+WIDE*p) \
	QUADS(FLIPPED, x, e, 0, 0)

#define FLIPPED(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	EOR16B(w, w, LOW) \
	DOT(acc, w, x, e)

#define Q80PASS(p) \
	ZEROED(p) \
	EIGHTBITS(p, 0, FIRSTX, 0) \
	EIGHTBITS(p, 1, FIRSTX, 1) \
	EIGHTBITS(p, 2, FIRSTX, 2) \
	EIGHTBITS(p, 3, FIRSTX, 3) \
	EIGHTBITS(p, 4, FIRSTX+1, 0) \
	EIGHTBITS(p, 5, FIRSTX+1, 1) \
	EIGHTBITS(p, 6, FIRSTX+1, 2) \
	EIGHTBITS(p, 7, FIRSTX+1, 3) \
	HALVES(512+WIDE*p/2, R1) \
	ADDSUMS(WIDE*p)

// NIBBLES multiplies two groups of four columns without higher bits, BITS with those that M1 and M2 merge.
#define NIBBLES(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	AND16B(t, w, LOW) \
	USHR16B(w, w, 4) \
	DOT(acc, t, x, e) \
	DOT(acc, w, x, e+1)

// VALUES is NIBBLES for MXFP4, whose codes' values are in HIGH.
#define VALUES(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	AND16B(t, w, LOW) \
	TBL16B(t, HIGH, t) \
	USHR16B(w, w, 4) \
	TBL16B(w, HIGH, w) \
	DOT(acc, t, x, e) \
	DOT(acc, w, x, e+1)

#define BITS(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	AND16B(t, w, LOW) \
	USHR16B(w, w, 4) \
	M1(t, hi, t2, HIGH) \
	DOT(acc, t, x, e) \
	M2(w, hi, t3, HIGH) \
	DOT(acc, w, x, e+1)

#define FOURBITS(p) \
	WEIGHTS(WIDE*p) \
	QUADS(NIBBLES, FIRSTX, 0, 0, 0) \
	WEIGHTS(64+WIDE*p) \
	QUADS(NIBBLES, FIRSTX, 2, 0, 0) \
	WEIGHTS(128+WIDE*p) \
	QUADS(NIBBLES, FIRSTX+1, 0, 0, 0) \
	WEIGHTS(192+WIDE*p) \
	QUADS(NIBBLES, FIRSTX+1, 2, 0, 0)

#define Q40PASS(p) \
	OFFSETPASS(p) \
	FOURBITS(p) \
	HALVES(256+WIDE*p/2, R1) \
	ADDSUMS(WIDE*p)

#define MXPASS(p) \
	ZEROED(p) \
	WEIGHTS(WIDE*p) \
	QUADS(VALUES, FIRSTX, 0, 0, 0) \
	WEIGHTS(64+WIDE*p) \
	QUADS(VALUES, FIRSTX, 2, 0, 0) \
	WEIGHTS(128+WIDE*p) \
	QUADS(VALUES, FIRSTX+1, 0, 0, 0) \
	WEIGHTS(192+WIDE*p) \
	QUADS(VALUES, FIRSTX+1, 2, 0, 0) \
	HALVES(256+WIDE*p/2, R1) \
	ADDSUMS(WIDE*p)

// SCALED multiplies a pass's sums by the integer scales at an offset, and adds them less the minimums behind these.
#define SCALED(p, at) \
	BYTES(at+WIDE*p/4) \
	TIMES \
	BYTES(at+16+WIDE*p/4) \
	HALVES(32+WIDE*p/2, R7) \
	MINIMUMS \
	HALVES(WIDE*p/2, R7) \
	ADDLOWS(WIDE*p)

#define Q4KPASS(p) \
	ZEROED(p) \
	FOURBITS(p) \
	SCALED(p, 256)

#define Q5KPASS(p) \
	ZEROED(p) \
	WEIGHTS(WIDE*p) \
	HIGHBITS(256+WIDE*p) \
	QUADS(BITS, FIRSTX, 0, LEFT4, LEFT3) \
	WEIGHTS(64+WIDE*p) \
	QUADS(BITS, FIRSTX, 2, LEFT2, LEFT1) \
	WEIGHTS(128+WIDE*p) \
	QUADS(BITS, FIRSTX+1, 0, SAME, RIGHT1) \
	WEIGHTS(192+WIDE*p) \
	QUADS(BITS, FIRSTX+1, 2, RIGHT2, RIGHT3) \
	SCALED(p, 320)

// Loads of a column's 16 weights of floats, in three sets of registers.
#define F32A VLD1.P 64(R1), [V20.S4, V21.S4, V22.S4, V23.S4]
#define F32B VLD1.P 64(R1), [V24.S4, V25.S4, V26.S4, V27.S4]
#define F32C VLD1.P 64(R1), [V28.S4, V29.S4, V30.S4, V31.S4]

#define WIDEN(w, LOWER, UPPER) \
	UPPER(w+3, w+2) \
	LOWER(w, w+1) \
	UPPER(w+1, w+1) \
	LOWER(w+2, w+2)

#define HALFA VLD1.P 32(R1), [V21.H8, V22.H8]
#define HALFB VLD1.P 32(R1), [V25.H8, V26.H8]
#define HALFC VLD1.P 32(R1), [V29.H8, V30.H8]

#define F16A \
	HALFA \
	WIDEN(20, FCVTL4H, FCVTL8H)

#define F16B \
	HALFB \
	WIDEN(24, FCVTL4H, FCVTL8H)

#define F16C \
	HALFC \
	WIDEN(28, FCVTL4H, FCVTL8H)

#define BF16A \
	HALFA \
	WIDEN(20, SHLL4H, SHLL8H)

#define BF16B \
	HALFB \
	WIDEN(24, SHLL4H, SHLL8H)

#define BF16C \
	HALFC \
	WIDEN(28, SHLL4H, SHLL8H)

// FLOATS adds column after column: four at a time, then the rest.
#define FLOATS(A, B, C) \
	ARGS \
	MOVD a_n+32(FP), R6 \
	FLOATBEGIN \
	SUBS $4, R6, R6 \
	BLT rest \
loop: \
	FETCH4 \
	A \
	COLUMN(20, 0) \
	B \
	COLUMN(24, 1) \
	C \
	COLUMN(28, 2) \
	A \
	COLUMN(20, 3) \
	SUBS $4, R6, R6 \
	BGE loop \
rest: \
	ADDS $4, R6, R6 \
	BEQ done \
one: \
	FETCH1 \
	A \
	COLUMN(20, 0) \
	SUBS $1, R6, R6 \
	BNE one \
done: \
	FLOATEND \
	RET

#define MULTIPLY(sum, w, x, e) \
	FMLA4SE(sum, w, x, e) \
	FMLA4SE(sum+1, w+1, x, e) \
	FMLA4SE(sum+2, w+2, x, e) \
	FMLA4SE(sum+3, w+3, x, e)

#define ZERO4(r) \
	EOR16B(r, r, r) \
	EOR16B(r+1, r+1, r+1) \
	EOR16B(r+2, r+2, r+2) \
	EOR16B(r+3, r+3, r+3)

// One vector.

#define INTS INTARGS
#define BEGIN ZERO4(11)
#define END \
	FSTPQ (F11, F12), 0(R0) \
	FSTPQ (F13, F14), 32(R0) \
	RET
#define FIRSTX 1
#define LOW 15
#define VLOW V15.B16
#define HIGH 16
#define VHIGH V16.B16
#define VOFFSET V17.S4
#define WIDE 64
#define PASSES(P) P(0)
#define FETCH \
	FMOVQ.P 16(R4), F0 \
	VLD1.P 32(R2), [V1.B16, V2.B16]
#define WEIGHTS(at) \
	FLDPQ at(R1), (F18, F19) \
	FLDPQ at+32(R1), (F20, F21)
#define HIGHBITS(at) \
	FLDPQ at(R1), (F22, F23) \
	FLDPQ at+32(R1), (F24, F25)
#define QUADS(OP, x, e, M1, M2) \
	OP(18, 22, 3, 26, 27, 28, x, e, M1, M2) \
	OP(19, 23, 4, 29, 30, 31, x, e, M1, M2) \
	OP(20, 24, 5, 26, 27, 28, x, e, M1, M2) \
	OP(21, 25, 6, 29, 30, 31, x, e, M1, M2)
#define DOT(acc, w, x, e) SDOT4SE(acc, w, x, e)
#define EACHSUM(OP) \
	OP(3, 0) \
	OP(4, 0) \
	OP(5, 0) \
	OP(6, 0)
#define OFFSET(acc, b) MUL4SE(acc, 17, b, 2)
#define HALVES(at, base) \
	FMOVQ at(base), F18 \
	FCVTL8H(19, 18) \
	FCVTL4H(18, 18) \
	FMOVQ at+16(base), F20 \
	FCVTL8H(21, 20) \
	FCVTL4H(20, 20)
#define BYTES(at) \
	FMOVQ at(R1), F22 \
	UXTL16B(24, 22) \
	UXTL8B(22, 22) \
	UXTL8H(23, 22) \
	UXTL4H(22, 22) \
	UXTL8H(25, 24) \
	UXTL4H(24, 24)
#define TIMES \
	MUL4S(3, 3, 22) \
	MUL4S(4, 4, 23) \
	MUL4S(5, 5, 24) \
	MUL4S(6, 6, 25)
#define MINIMUM(low, scale) \
	SCVTF4S(low, low) \
	FMUL4S(low, low, scale)
#define MINIMUMS \
	MINIMUM(22, 18) \
	MINIMUM(23, 19) \
	MINIMUM(24, 20) \
	MINIMUM(25, 21)

// SUM adds a sum times its scales to a float sum, LESS subtracts a minimum times the activations' sum.
#define SUM(acc, scale, sum, b) \
	SCVTF4S(acc, acc) \
	FMUL4S(acc, acc, scale) \
	FMLA4SE(sum, acc, b, 0)
#define LESS(low, sum, b) FMLS4SE(sum, low, b, 1)

#define ADDSUMS(at) \
	SUM(3, 18, 11, 0) \
	SUM(4, 19, 12, 0) \
	SUM(5, 20, 13, 0) \
	SUM(6, 21, 14, 0)
#define ADDLOWS(at) \
	SUM(3, 18, 11, 0) \
	LESS(22, 11, 0) \
	SUM(4, 19, 12, 0) \
	LESS(23, 12, 0) \
	SUM(5, 20, 13, 0) \
	LESS(24, 13, 0) \
	SUM(6, 21, 14, 0) \
	LESS(25, 14, 0)
#define FLOATBEGIN ZERO4(0)
#define FETCH4 FMOVQ.P 16(R2), F16
#define FETCH1 FMOVS.P 4(R2), F16
#define COLUMN(w, e) MULTIPLY(0, w, 16, e)
#define FLOATEND \
	FSTPQ (F0, F1), 0(R0) \
	FSTPQ (F2, F3), 32(R0)
#define MULF32 ·mulF32n1
#define MULF16 ·mulF16n1
#define MULBF16 ·mulBF16n1
#define MULQ80 ·mulQ80n1
#define MULQ40 ·mulQ40n1
#define MULMX ·mulMXn1
#define MULQ4K ·mulQ4Kn1
#define MULQ5K ·mulQ5Kn1
#include "tile_arm64.h"

// LASTBITS does the same for the sums of the last 16 columns.
#define LASTBITS(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	BITS(w, hi, acc+4, t, t2, t3, x, e, M1, M2)

// SIGNEDBYTES makes four 32-bit scales of each four bytes of a register.
#define SIGNEDBYTES(from) \
	SXTL16B(24, from) \
	SXTL8B(22, from) \
	SXTL8H(23, 22) \
	SXTL4H(22, 22) \
	SXTL8H(25, 24) \
	SXTL4H(24, 24)

TEXT ·mulQ6Kn1(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x0f, V15.B16
	VMOVI $0x30, V16.B16
	MOVW $0xffffffe0, R19 // -32
	VDUP R19, V17.S4
loop:
	MOVD R1, R7
	ADD $32, R1
	MOVD $8, R8
part:
	FETCH
	SXTL8H(18, 0) // the halves' sums, in elements 2 and 3
	MUL4SE(7, 17, 18, 3)
	MUL4SE(8, 17, 18, 3)
	MUL4SE(9, 17, 18, 3)
	MUL4SE(10, 17, 18, 3)
	MUL4SE(3, 17, 18, 2)
	MUL4SE(4, 17, 18, 2)
	MUL4SE(5, 17, 18, 2)
	MUL4SE(6, 17, 18, 2)
	WEIGHTS(0)
	HIGHBITS(256)
	QUADS(BITS, 1, 0, LEFT4, LEFT2)
	WEIGHTS(64)
	QUADS(BITS, 1, 2, SAME, RIGHT2)
	WEIGHTS(128)
	HIGHBITS(320)
	QUADS(LASTBITS, 2, 0, LEFT4, LEFT2)
	WEIGHTS(192)
	QUADS(LASTBITS, 2, 2, SAME, RIGHT2)
	FLDPQ 384(R1), (F26, F27) // the scales of the first and of the last columns alternate
	UZP2_16B(28, 26, 27)
	UZP1_16B(26, 26, 27)
	SIGNEDBYTES(26)
	TIMES
	SIGNEDBYTES(28)
	MLA4S(3, 7, 22)
	MLA4S(4, 8, 23)
	MLA4S(5, 9, 24)
	MLA4S(6, 10, 25)
	HALVES(0, R7)
	ADDSUMS(0)
	ADD $416, R1
	SUBS $1, R8, R8
	BNE part
	SUBS $1, R6, R6
	BNE loop
	END

// Four vectors.

#undef INTS
#undef BEGIN
#undef END
#undef FIRSTX
#undef LOW
#undef VLOW
#undef HIGH
#undef VHIGH
#undef VOFFSET
#undef WIDE
#undef PASSES
#undef FETCH
#undef WEIGHTS
#undef HIGHBITS
#undef QUADS
#undef DOT
#undef EACHSUM
#undef OFFSET
#undef HALVES
#undef BYTES
#undef TIMES
#undef MINIMUMS
#undef ADDSUMS
#undef ADDLOWS
#undef FLOATBEGIN
#undef FETCH4
#undef FETCH1
#undef COLUMN
#undef FLOATEND
#undef MULF32
#undef MULF16
#undef MULBF16
#undef MULQ80
#undef MULQ40
#undef MULMX
#undef MULQ4K
#undef MULQ5K

#define INTS \
	INTARGS \
	ADD R3, R2, R9 \
	ADD R5, R4, R12 \
	ADD R3, R9, R10 \
	ADD R5, R12, R13 \
	ADD R3, R10, R11 \
	ADD R5, R13, R14
#define BEGIN \
	VEOR V23.B16, V23.B16, V23.B16 \
	FSTPQ (F23, F23), 0(R0) \
	FSTPQ (F23, F23), 32(R0) \
	FSTPQ (F23, F23), 64(R0) \
	FSTPQ (F23, F23), 96(R0) \
	FSTPQ (F23, F23), 128(R0) \
	FSTPQ (F23, F23), 160(R0) \
	FSTPQ (F23, F23), 192(R0) \
	FSTPQ (F23, F23), 224(R0)
#define END RET
#define FIRSTX 4
#define LOW 20
#define VLOW V20.B16
#define HIGH 21
#define VHIGH V21.B16
#define VOFFSET V21.S4
#define WIDE 32
#define PASSES(P) \
	P(0) \
	P(1)
#define FETCH \
	FMOVQ.P 16(R4), F0 \
	VLD1.P 32(R2), [V4.B16, V5.B16] \
	FMOVQ.P 16(R12), F1 \
	VLD1.P 32(R9), [V8.B16, V9.B16] \
	FMOVQ.P 16(R13), F2 \
	VLD1.P 32(R10), [V12.B16, V13.B16] \
	FMOVQ.P 16(R14), F3 \
	VLD1.P 32(R11), [V16.B16, V17.B16]
#define WEIGHTS(at) FLDPQ at(R1), (F22, F23)
#define HIGHBITS(at) FLDPQ at(R1), (F24, F25)
#define QUADS(OP, x, e, M1, M2) \
	OP(22, 24, 6, 26, 27, 28, x, e, M1, M2) \
	OP(23, 25, 7, 29, 30, 31, x, e, M1, M2)
#define DOT(acc, w, x, e) \
	SDOT4SE(acc, w, x, e) \
	SDOT4SE(acc+4, w, x+4, e) \
	SDOT4SE(acc+8, w, x+8, e) \
	SDOT4SE(acc+12, w, x+12, e)
#define EACHSUM(OP) \
	OP(6, 0) \
	OP(7, 0) \
	OP(10, 1) \
	OP(11, 1) \
	OP(14, 2) \
	OP(15, 2) \
	OP(18, 3) \
	OP(19, 3)
#define OFFSET(acc, b) MUL4SE(acc, 21, b, 2)
#define HALVES(at, base) \
	FMOVQ at(base), F22 \
	FCVTL8H(23, 22) \
	FCVTL4H(22, 22)
#define BYTES(at) \
	FMOVD at(R1), F24 \
	UXTL8B(24, 24) \
	UXTL8H(25, 24) \
	UXTL4H(24, 24)
#define TIMES \
	MUL4S(6, 6, 24) \
	MUL4S(7, 7, 25) \
	MUL4S(10, 10, 24) \
	MUL4S(11, 11, 25) \
	MUL4S(14, 14, 24) \
	MUL4S(15, 15, 25) \
	MUL4S(18, 18, 24) \
	MUL4S(19, 19, 25)
#define MINIMUMS \
	MINIMUM(24, 22) \
	MINIMUM(25, 23)
#define ADDTO(at, acc, b) \
	FLDPQ at(R0), (F26, F27) \
	SUM(acc, 22, 26, b) \
	SUM(acc+1, 23, 27, b) \
	FSTPQ (F26, F27), at(R0)
#define ADDSUMS(at) \
	ADDTO(at, 6, 0) \
	ADDTO(at+64, 10, 1) \
	ADDTO(at+128, 14, 2) \
	ADDTO(at+192, 18, 3)
#define ADDLESS(at, acc, b) \
	FLDPQ at(R0), (F26, F27) \
	SUM(acc, 22, 26, b) \
	LESS(24, 26, b) \
	SUM(acc+1, 23, 27, b) \
	LESS(25, 27, b) \
	FSTPQ (F26, F27), at(R0)
#define ADDLOWS(at) \
	ADDLESS(at, 6, 0) \
	ADDLESS(at+64, 10, 1) \
	ADDLESS(at+128, 14, 2) \
	ADDLESS(at+192, 18, 3)
#define FLOATBEGIN \
	ADD R3, R2, R9 \
	ADD R3, R9, R10 \
	ADD R3, R10, R11 \
	ZERO4(0) \
	ZERO4(4) \
	ZERO4(8) \
	ZERO4(12)
#define FETCH4 \
	FMOVQ.P 16(R2), F16 \
	FMOVQ.P 16(R9), F17 \
	FMOVQ.P 16(R10), F18 \
	FMOVQ.P 16(R11), F19
#define FETCH1 \
	FMOVS.P 4(R2), F16 \
	FMOVS.P 4(R9), F17 \
	FMOVS.P 4(R10), F18 \
	FMOVS.P 4(R11), F19
#define COLUMN(w, e) \
	MULTIPLY(0, w, 16, e) \
	MULTIPLY(4, w, 17, e) \
	MULTIPLY(8, w, 18, e) \
	MULTIPLY(12, w, 19, e)
#define FLOATEND \
	FSTPQ (F0, F1), 0(R0) \
	FSTPQ (F2, F3), 32(R0) \
	FSTPQ (F4, F5), 64(R0) \
	FSTPQ (F6, F7), 96(R0) \
	FSTPQ (F8, F9), 128(R0) \
	FSTPQ (F10, F11), 160(R0) \
	FSTPQ (F12, F13), 192(R0) \
	FSTPQ (F14, F15), 224(R0)
#define MULF32 ·mulF32n4
#define MULF16 ·mulF16n4
#define MULBF16 ·mulBF16n4
#define MULQ80 ·mulQ80n4
#define MULQ40 ·mulQ40n4
#define MULMX ·mulMXn4
#define MULQ4K ·mulQ4Kn4
#define MULQ5K ·mulQ5Kn4
#include "tile_arm64.h"

// Q6_K has V6, V10 … for sums of the first 16 columns and V7, V11 … of the last. V22 is minus the offset of the weights.
#define BOTHOFFSETS(acc, b) \
	SXTL8H(23, b) \
	MUL4SE(acc+1, 22, 23, 3) \
	MUL4SE(acc, 22, 23, 2)

#define Q6KPASS(p) \
	BOTHOFFSETS(6, 0) \
	BOTHOFFSETS(10, 1) \
	BOTHOFFSETS(14, 2) \
	BOTHOFFSETS(18, 3) \
	FMOVQ 16*p(R1), F23 \
	FMOVQ 16*p+256(R1), F24 \
	BITS(23, 24, 6, 25, 26, 27, 4, 0, LEFT4, LEFT2) \
	FMOVQ 16*p+64(R1), F23 \
	BITS(23, 24, 6, 28, 29, 29, 4, 2, SAME, RIGHT2) \
	FMOVQ 16*p+128(R1), F23 \
	FMOVQ 16*p+320(R1), F24 \
	BITS(23, 24, 7, 30, 31, 25, 5, 0, LEFT4, LEFT2) \
	FMOVQ 16*p+192(R1), F23 \
	BITS(23, 24, 7, 26, 27, 27, 5, 2, SAME, RIGHT2) \
	FMOVD 8*p+384(R1), F25 \
	UZP2_16B(27, 25, 25) \
	UZP1_16B(25, 25, 25) \
	SXTL8B(24, 25) \
	SXTL4H(24, 24) \
	MUL4S(6, 6, 24) \
	MUL4S(10, 10, 24) \
	MUL4S(14, 14, 24) \
	MUL4S(18, 18, 24) \
	SXTL8B(24, 27) \
	SXTL4H(24, 24) \
	MLA4S(6, 7, 24) \
	MLA4S(10, 11, 24) \
	MLA4S(14, 15, 24) \
	MLA4S(18, 19, 24) \
	FMOVD 8*p(R7), F23 \
	FCVTL4H(23, 23) \
	ADDROWS(16*p, 6, 0) \
	ADDROWS(16*p+64, 10, 1) \
	ADDROWS(16*p+128, 14, 2) \
	ADDROWS(16*p+192, 18, 3)

#define ADDROWS(at, acc, b) \
	FMOVQ at(R0), F25 \
	SUM(acc, 23, 25, b) \
	FMOVQ F25, at(R0)

TEXT ·mulQ6Kn4(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x0f, V20.B16
	VMOVI $0x30, V21.B16
	MOVW $0xffffffe0, R19 // -32
	VDUP R19, V22.S4
loop:
	MOVD R1, R7
	ADD $32, R1
	MOVD $8, R8
part:
	FETCH
	Q6KPASS(0)
	Q6KPASS(1)
	Q6KPASS(2)
	Q6KPASS(3)
	ADD $416, R1
	SUBS $1, R8, R8
	BNE part
	SUBS $1, R6, R6
	BNE loop
	END
