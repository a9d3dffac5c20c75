#include "textflag.h"

// Products of a tile with one or four vectors. plainInts and plainFloats define the results, to the bit.
//
//	SI  the tile's current block        AX  results [tokens][16] float32
//	DI  the first vector                R8, R9    bytes from a vector to the next, and three times that
//	DX  its blocks' scales and sums     R10, R11  the same for those
//	CX  blocks, or columns, to go       BX, R12   a block's head, parts to go
//	Y0 to Y7  sums: of the first vector's rows 0 to 7 and 8 to 15, of the second's, and so on
//
// The stack holds the factors of sums of pairs: the rows' integer scales, as 16-bit values that fill 32 bits. Those of a
// part's first 16 columns are at 0, of the last at 64. For Q6_K, both scales times -32 are at 128.

#define NUMBERS(name, bits) \
	DATA name<>+0(SB)/8, $bits \
	DATA name<>+8(SB)/8, $bits \
	DATA name<>+16(SB)/8, $bits \
	DATA name<>+24(SB)/8, $bits \
	GLOBL name<>(SB), RODATA|NOPTR, $32

NUMBERS(ones, 0x0001000100010001)   // 16-bit: 1
NUMBERS(eights, 0xfff8fff8fff8fff8) // 16-bit: -8
NUMBERS(flip, 0x8080808080808080)
NUMBERS(low4, 0x0f0f0f0f0f0f0f0f)
NUMBERS(bit4, 0x1010101010101010)
NUMBERS(bit45, 0x3030303030303030)

// Twice the values of MXFP4's codes.
DATA values<>+0(SB)/8, $0x0c08060403020100
DATA values<>+8(SB)/8, $0xf4f8fafcfdfeff00
GLOBL values<>(SB), RODATA|NOPTR, $16

// EACH1 and EACH4 do an operation for each vector: with two operands of the caller's, its two sums, its activations, its
// scales and its results' offset.
#define EACH1(OP, w, at) \
	OP(w, at, Y0, Y1, (DI), (DX), 0)

#define EACH4(OP, w, at) \
	EACH1(OP, w, at) \
	OP(w, at, Y2, Y3, (DI)(R8*1), (DX)(R10*1), 64) \
	OP(w, at, Y4, Y5, (DI)(R8*2), (DX)(R10*2), 128) \
	OP(w, at, Y6, Y7, (DI)(R9*1), (DX)(R11*1), 192)

#define CLEAR(w, at, s, t, x, b, to) \
	VPXOR s, s, s \
	VPXOR t, t, t

#define STORE(w, at, s, t, x, b, to) \
	VMOVUPS s, to(AX) \
	VMOVUPS t, to+32(AX)

// ZERO clears a vector's results; Y6 is zero.
#define ZERO(w, at, s, t, x, b, to) \
	VMOVUPS Y6, to(AX) \
	VMOVUPS Y6, to+32(AX)

// ADD1 and ADD4 convert the integer sums to floats, multiply them by the scales of the weights, Y8 and Y9, and of the
// activations, and add them to the float sums: for one vector in Y6 and Y7, for more in the results. With LOWS they
// subtract Y10 and Y11 times the activations' sum.
#define ADD1(w, at, s, t, x, b, to) \
	VBROADCASTSS 0 b, Y12 \
	VCVTDQ2PS s, s \
	VMULPS Y8, s, s \
	VFMADD231PS Y12, s, Y6 \
	VCVTDQ2PS t, t \
	VMULPS Y9, t, t \
	VFMADD231PS Y12, t, Y7

#define ADDLOWS1(w, at, s, t, x, b, to) \
	VBROADCASTSS 0 b, Y12 \
	VBROADCASTSS 4 b, Y13 \
	VCVTDQ2PS s, s \
	VMULPS Y8, s, s \
	VFMADD231PS Y12, s, Y6 \
	VFNMADD231PS Y13, Y10, Y6 \
	VCVTDQ2PS t, t \
	VMULPS Y9, t, t \
	VFMADD231PS Y12, t, Y7 \
	VFNMADD231PS Y13, Y11, Y7

#define ADD4(w, at, s, t, x, b, to) \
	VBROADCASTSS 0 b, Y12 \
	VCVTDQ2PS s, s \
	VMULPS Y8, s, s \
	VFMADD213PS to(AX), Y12, s \
	VMOVUPS s, to(AX) \
	VCVTDQ2PS t, t \
	VMULPS Y9, t, t \
	VFMADD213PS to+32(AX), Y12, t \
	VMOVUPS t, to+32(AX)

#define ADDLOWS4(w, at, s, t, x, b, to) \
	VBROADCASTSS 0 b, Y12 \
	VBROADCASTSS 4 b, Y13 \
	VCVTDQ2PS s, s \
	VMULPS Y8, s, s \
	VFMADD213PS to(AX), Y12, s \
	VFNMADD231PS Y13, Y10, s \
	VMOVUPS s, to(AX) \
	VCVTDQ2PS t, t \
	VMULPS Y9, t, t \
	VFMADD213PS to+32(AX), Y12, t \
	VFNMADD231PS Y13, Y11, t \
	VMOVUPS t, to+32(AX)

// INTS begins a function of 8-bit activations.
#define INTS \
	MOVQ a_acc+0(FP), AX \
	MOVQ a_w+8(FP), SI \
	MOVQ a_x+16(FP), DI \
	MOVQ a_xs+24(FP), R8 \
	MOVQ a_b+32(FP), DX \
	MOVQ a_bs+40(FP), R10 \
	MOVQ a_n+48(FP), CX \
	LEAQ (R8)(R8*2), R9 \
	LEAQ (R10)(R10*2), R11 \
	VPXOR Y6, Y6, Y6 \
	VPXOR Y7, Y7, Y7 \
	START

#define NEXT \
	ADDQ $32, DI \
	ADDQ $16, DX

// EIGHTBITS multiplies a group of four columns.
#define EIGHTBITS(g, OP) \
	FETCH(64*g) \
	VPXOR 64*g(SI), Y14, Y8 \
	VPABSB Y8, Y10 \
	VPXOR 64*g+32(SI), Y14, Y9 \
	VPABSB Y9, Y11 \
	EACH(OP, 0, 4*g)

#define SIGNED(w, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPSIGNB Y8, Y12, Y13 \
	VPSIGNB Y9, Y12, Y12 \
	VPMADDUBSW Y13, Y10, Y13 \
	VPMADDWD Y15, Y13, s \
	VPMADDUBSW Y12, Y11, Y12 \
	VPMADDWD Y15, Y12, t

#define ADDSIGNED(w, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPSIGNB Y8, Y12, Y13 \
	VPSIGNB Y9, Y12, Y12 \
	VPMADDUBSW Y13, Y10, Y13 \
	VPMADDWD Y15, Y13, Y13 \
	VPADDD Y13, s, s \
	VPMADDUBSW Y12, Y11, Y12 \
	VPMADDWD Y15, Y12, Y12 \
	VPADDD Y12, t, t

// VALUES multiplies a group of four columns of MXFP4, which is in the lower half of bytes or the upper.
#define VALUES(at, HALF, x, OP) \
	FETCH(at) \
	VALUE(at, HALF, Y8, Y10) \
	VALUE(at+32, HALF, Y9, Y11) \
	EACH(OP, 0, x)

#define VALUE(at, HALF, w, abs) \
	VMOVDQU at(SI), w \
	HALF(w) \
	VPAND low4<>(SB), w, w \
	VPSHUFB w, Y14, w \
	VPABSB w, abs

#define KEEP(w)
#define UPPER(w) VPSRLW $4, w, w

// LOWBITS loads two groups of four columns of eight rows, without higher bits.
#define LOWBITS(at, first, second) \
	VMOVDQU at(SI), first \
	VPSRLW $4, first, second \
	VPAND low4<>(SB), first, first \
	VPAND low4<>(SB), second, second

// FOURBITS sums all products of a part in 16 bits: they are at most 8·2·15·127.
#define FOURBITS \
	FOUR(0, PRODUCTS) \
	FOUR(1, ADDPRODUCTS) \
	FOUR(2, ADDPRODUCTS) \
	FOUR(3, ADDPRODUCTS)

#define FOUR(j, OP) \
	FETCH(64*j) \
	LOWBITS(64*j, Y8, Y9) \
	LOWBITS(64*j+32, Y10, Y11) \
	EACH(OP, 0, 8*j)

#define PRODUCTS(w, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPMADDUBSW Y12, Y8, s \
	VPMADDUBSW Y12, Y10, t \
	VPBROADCASTD at+4 x, Y12 \
	VPMADDUBSW Y12, Y9, Y13 \
	VPADDW Y13, s, s \
	VPMADDUBSW Y12, Y11, Y14 \
	VPADDW Y14, t, t

#define ADDPRODUCTS(w, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPMADDUBSW Y12, Y8, Y13 \
	VPADDW Y13, s, s \
	VPMADDUBSW Y12, Y10, Y14 \
	VPADDW Y14, t, t \
	VPBROADCASTD at+4 x, Y12 \
	VPMADDUBSW Y12, Y9, Y13 \
	VPADDW Y13, s, s \
	VPMADDUBSW Y12, Y11, Y14 \
	VPADDW Y14, t, t

// LESSEIGHT subtracts the offset of Q4_0, TIMESSCALE multiplies by the scales on the stack, LESS32 begins with the offset
// of Q6_K.
#define LESSEIGHT(w, at, s, t, x, b, to) \
	VPBROADCASTD 12 b, Y12 \
	VPMADDWD eights<>(SB), Y12, Y12 \
	VPMADDWD ones<>(SB), s, s \
	VPADDD Y12, s, s \
	VPMADDWD ones<>(SB), t, t \
	VPADDD Y12, t, t

#define TIMESSCALE(w, at, s, t, x, b, to) \
	VPMADDWD (SP), s, s \
	VPMADDWD 32(SP), t, t

#define LESS32(w, at, s, t, x, b, to) \
	VPBROADCASTD 12 b, Y12 \
	VPMADDWD 128(SP), Y12, s \
	VPMADDWD 160(SP), Y12, t

// SCALE puts the integer scales of eight rows on the stack; SIGNEDSCALES both of Q6_K, and these times -32.
#define SCALE(at, to) \
	VPMOVZXBD at(SI), Y8 \
	VPSLLD $16, Y8, Y9 \
	VPOR Y8, Y9, Y8 \
	VMOVDQU Y8, to(SP)

#define SIGNEDSCALES(at, to) \
	VPMOVSXBW at(SI), Y8 \
	VPSLLD $16, Y8, Y9 \
	VPSRLD $16, Y9, Y10 \
	VPOR Y9, Y10, Y10 \
	VMOVDQU Y10, to(SP) \
	VPSRLD $16, Y8, Y9 \
	VPSLLD $16, Y9, Y10 \
	VPOR Y9, Y10, Y10 \
	VMOVDQU Y10, to+64(SP) \
	VPSLLW $5, Y8, Y8 \
	VPXOR Y9, Y9, Y9 \
	VPSUBW Y8, Y9, Y8 \
	VMOVDQU Y8, to+128(SP)

#define BLOCKSCALES \
	VCVTPH2PS (BX), Y8 \
	VCVTPH2PS 16(BX), Y9

// LOWS loads the minimums.
#define LOWS(at) \
	VPMOVZXBD at(SI), Y10 \
	VCVTPH2PS 32(BX), Y12 \
	VCVTDQ2PS Y10, Y10 \
	VMULPS Y12, Y10, Y10 \
	VPMOVZXBD at+8(SI), Y11 \
	VCVTPH2PS 48(BX), Y12 \
	VCVTDQ2PS Y11, Y11 \
	VMULPS Y12, Y11, Y11

// These add the bits above the low four, from Y12.
#define MASKED(mask, w) \
	VPAND mask<>(SB), Y13, Y13 \
	VPOR Y13, w, w

#define LEFT4(mask, w) \
	VPSLLW $4, Y12, Y13 \
	MASKED(mask, w)

#define LEFT3(mask, w) \
	VPSLLW $3, Y12, Y13 \
	MASKED(mask, w)

#define LEFT2(mask, w) \
	VPSLLW $2, Y12, Y13 \
	MASKED(mask, w)

#define LEFT1(mask, w) \
	VPSLLW $1, Y12, Y13 \
	MASKED(mask, w)

#define SAME(mask, w) \
	VPAND mask<>(SB), Y12, Y13 \
	VPOR Y13, w, w

#define RIGHT1(mask, w) \
	VPSRLW $1, Y12, Y13 \
	MASKED(mask, w)

#define RIGHT2(mask, w) \
	VPSRLW $2, Y12, Y13 \
	MASKED(mask, w)

#define RIGHT3(mask, w) \
	VPSRLW $3, Y12, Y13 \
	MASKED(mask, w)

// UNPACK loads two groups of four columns, of rows 0 to 7 to Y8 and Y9, of the others to Y10 and Y11.
#define UNPACK(low, high, FIRST, SECOND, mask) \
	LOWBITS(low, Y8, Y9) \
	VMOVDQU high(SI), Y12 \
	FIRST(mask, Y8) \
	SECOND(mask, Y9) \
	LOWBITS(low+32, Y10, Y11) \
	VMOVDQU high+32(SI), Y12 \
	FIRST(mask, Y10) \
	SECOND(mask, Y11)

// PAIRS sums the products of two groups in 16 bits, at most 2·2·63·127, and multiplies them by the rows' scales.
#define PAIRS(scale, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPBROADCASTD at+4 x, Y13 \
	VPMADDUBSW Y12, Y8, Y14 \
	VPMADDUBSW Y13, Y9, Y15 \
	VPADDW Y15, Y14, Y14 \
	VPMADDWD scale(SP), Y14, s \
	VPMADDUBSW Y12, Y10, Y14 \
	VPMADDUBSW Y13, Y11, Y15 \
	VPADDW Y15, Y14, Y14 \
	VPMADDWD scale+32(SP), Y14, t

#define ADDPAIRS(scale, at, s, t, x, b, to) \
	VPBROADCASTD at x, Y12 \
	VPBROADCASTD at+4 x, Y13 \
	VPMADDUBSW Y12, Y8, Y14 \
	VPMADDUBSW Y13, Y9, Y15 \
	VPADDW Y15, Y14, Y14 \
	VPMADDWD scale(SP), Y14, Y14 \
	VPADDD Y14, s, s \
	VPMADDUBSW Y12, Y10, Y14 \
	VPMADDUBSW Y13, Y11, Y15 \
	VPADDW Y15, Y14, Y14 \
	VPMADDWD scale+32(SP), Y14, Y14 \
	VPADDD Y14, t, t

#define LOADF32(at) \
	VMOVUPS at(SI), Y8 \
	VMOVUPS at+32(SI), Y9

#define LOADF16(at) \
	VCVTPH2PS at(SI), Y8 \
	VCVTPH2PS at+16(SI), Y9

#define LOADBF16(at) \
	VPMOVZXWD at(SI), Y8 \
	VPSLLD $16, Y8, Y8 \
	VPMOVZXWD at+16(SI), Y9 \
	VPSLLD $16, Y9, Y9

#define MULTIPLY(w, at, s, t, x, b, to) \
	VBROADCASTSS at x, Y10 \
	VFMADD231PS Y10, Y8, s \
	VFMADD231PS Y10, Y9, t

#define NOTHING(at)

// FLOATS adds column after column: four at a time, then the rest. ODD prefetches the second and the fourth.
#define FLOATS(LOAD, size, ODD) \
	MOVQ a_acc+0(FP), AX \
	MOVQ a_w+8(FP), SI \
	MOVQ a_x+16(FP), DI \
	MOVQ a_xs+24(FP), R8 \
	MOVQ a_n+32(FP), CX \
	LEAQ (R8)(R8*2), R9 \
	EACH(CLEAR, 0, 0) \
	SUBQ $4, CX \
	JLT rest \
loop: \
	FETCH(0) \
	LOAD(0) \
	EACH(MULTIPLY, 0, 0) \
	ODD(size) \
	LOAD(size) \
	EACH(MULTIPLY, 0, 4) \
	FETCH(2*size) \
	LOAD(2*size) \
	EACH(MULTIPLY, 0, 8) \
	ODD(3*size) \
	LOAD(3*size) \
	EACH(MULTIPLY, 0, 12) \
	ADDQ $(4*size), SI \
	ADDQ $16, DI \
	SUBQ $4, CX \
	JGE loop \
rest: \
	ADDQ $4, CX \
	JZ done \
one: \
	FETCH(0) \
	LOAD(0) \
	EACH(MULTIPLY, 0, 0) \
	ADDQ $size, SI \
	ADDQ $4, DI \
	DECQ CX \
	JNZ one \
done: \
	EACH(STORE, 0, 0) \
	VZEROUPPER \
	RET

#define EACH EACH1
#define FETCH(at) PREFETCHT0 4096+at(SI)
#define START
#define END \
	VMOVUPS Y6, (AX) \
	VMOVUPS Y7, 32(AX) \
	VZEROUPPER \
	RET
#define ADD ADD1
#define ADDLOWS ADDLOWS1
#define MULF32 ·mulF32x1
#define MULF16 ·mulF16x1
#define MULBF16 ·mulBF16x1
#define MULQ80 ·mulQ80x1
#define MULQ40 ·mulQ40x1
#define MULMX ·mulMXx1
#define MULQ4K ·mulQ4Kx1
#define MULQ5K ·mulQ5Kx1
#define MULQ6K ·mulQ6Kx1
#include "tile_amd64.h"

#undef EACH
#undef FETCH
#undef START
#undef END
#undef ADD
#undef ADDLOWS
#undef MULF32
#undef MULF16
#undef MULBF16
#undef MULQ80
#undef MULQ40
#undef MULMX
#undef MULQ4K
#undef MULQ5K
#undef MULQ6K
#define EACH EACH4
#define FETCH(at)
#define START EACH(ZERO, 0, 0)
#define END \
	VZEROUPPER \
	RET
#define ADD ADD4
#define ADDLOWS ADDLOWS4
#define MULF32 ·mulF32x4
#define MULF16 ·mulF16x4
#define MULBF16 ·mulBF16x4
#define MULQ80 ·mulQ80x4
#define MULQ40 ·mulQ40x4
#define MULMX ·mulMXx4
#define MULQ4K ·mulQ4Kx4
#define MULQ5K ·mulQ5Kx4
#define MULQ6K ·mulQ6Kx4
#include "tile_amd64.h"
