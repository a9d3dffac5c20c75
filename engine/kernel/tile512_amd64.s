#include "textflag.h"

// Products of a tile with one, four or eight vectors. plainInts and plainFloats define the results, to the bit. A
// register holds the 16 rows of a tile. VPDPBUSD adds four products of unsigned weights with four shared activations to
// 32-bit sums. VPDPWSSD subtracts the offset of the weights, times the sums of the activations. Integer scales become
// floats: their products with the sums are below 2^24, and so exact.
//
//	SI  the tile's current block        AX  results [tokens][16] float32
//	DI  the first vector, R12 the fifth            R8, R9    bytes from a vector to the next, and three times that
//	DX  the first's scales and sums, R13 the fifth's   R10, R11  the same for those
//	CX  blocks, or columns, to go       BX, R14  a block's head, parts to go
//	Z0 to Z7    integer sums     Z8 to Z15  float sums     Z16 to Z23  weights, or Q6_K's second integer sums
//	Z24 to Z31  weights, scales, constants

#define NUMBER(name, bits) \
	DATA name<>+0(SB)/4, $bits \
	GLOBL name<>(SB), RODATA|NOPTR, $4

NUMBER(minus128, 0xff80ff80) // two of 16 bits
NUMBER(minus8, 0xfff8fff8)
NUMBER(minus12, 0xfff4fff4)
NUMBER(minus32first, 0x0000ffe0)
NUMBER(minus32last, 0xffe00000)
NUMBER(low4, 0x0f0f0f0f)
NUMBER(bit4, 0x10101010)
NUMBER(bit45, 0x30303030)

// Twice the values of MXFP4's codes, and 12.
DATA values<>+0(SB)/8, $0x181412100f0e0d0c
DATA values<>+8(SB)/8, $0x00040608090a0b0c
GLOBL values<>(SB), RODATA|NOPTR, $16

// EACH1, EACH4 and EACH8 do an operation for each vector: with two operands of the caller's, its integer sum, its float
// sum, its second integer sum, its activations, its scales and its results' offset.
#define EACH1(OP, w, at) \
	OP(w, at, Z0, Z8, Z16, (DI), (DX), 0)

#define EACH4(OP, w, at) \
	EACH1(OP, w, at) \
	OP(w, at, Z1, Z9, Z17, (DI)(R8*1), (DX)(R10*1), 64) \
	OP(w, at, Z2, Z10, Z18, (DI)(R8*2), (DX)(R10*2), 128) \
	OP(w, at, Z3, Z11, Z19, (DI)(R9*1), (DX)(R11*1), 192)

#define EACH8(OP, w, at) \
	EACH4(OP, w, at) \
	OP(w, at, Z4, Z12, Z20, (R12), (R13), 256) \
	OP(w, at, Z5, Z13, Z21, (R12)(R8*1), (R13)(R10*1), 320) \
	OP(w, at, Z6, Z14, Z22, (R12)(R8*2), (R13)(R10*2), 384) \
	OP(w, at, Z7, Z15, Z23, (R12)(R9*1), (R13)(R11*1), 448)

#define CLEAR(w, at, i, f, l, x, b, to)      VPXORD i, i, i
#define CLEARF(w, at, i, f, l, x, b, to)     VPXORD f, f, f
#define STORE(w, at, i, f, l, x, b, to)      VMOVUPS i, to(AX)
#define STOREF(w, at, i, f, l, x, b, to)     VMOVUPS f, to(AX)
#define MULTIPLY(w, at, i, f, l, x, b, to)   VFMADD231PS.BCST at x, w, i
#define DOT(w, at, i, f, l, x, b, to)        VPDPBUSD.BCST at x, w, i
#define DOTLAST(w, at, i, f, l, x, b, to)    VPDPBUSD.BCST 16+at x, w, l

// OFFSET sets a sum to the offset w times the sums of the activations.
#define OFFSET(w, at, i, f, l, x, b, to) \
	VPXORD i, i, i \
	VPDPWSSD.BCST 12 b, w, i

#define OFFSETLAST(w, at, i, f, l, x, b, to) \
	VPXORD l, l, l \
	VPDPWSSD.BCST 12 b, w, l

// ADD multiplies a sum by the scales of the weights, Z27, and of the activations. ADDLOWS multiplies it by Z29 before,
// and subtracts Z26 times the activations' sum. ADDBOTH adds Q6_K's two sums with the scales Z29 and Z30 before.
#define ADD(w, at, i, f, l, x, b, to) \
	VCVTDQ2PS i, i \
	VMULPS Z27, i, i \
	VFMADD231PS.BCST 0 b, i, f

#define ADDLOWS(w, at, i, f, l, x, b, to) \
	VCVTDQ2PS i, i \
	VMULPS Z29, i, i \
	VMULPS Z27, i, i \
	VFMADD231PS.BCST 0 b, i, f \
	VFNMADD231PS.BCST 4 b, Z26, f

#define ADDBOTH(w, at, i, f, l, x, b, to) \
	VCVTDQ2PS i, i \
	VMULPS Z29, i, i \
	VCVTDQ2PS l, l \
	VFMADD231PS Z30, l, i \
	VMULPS Z27, i, i \
	VFMADD231PS.BCST 0 b, i, f

#define BEGIN \
	MOVQ a_acc+0(FP), AX \
	MOVQ a_w+8(FP), SI \
	MOVQ a_x+16(FP), DI \
	MOVQ a_xs+24(FP), R8 \
	LEAQ (R8)(R8*2), R9 \
	LEAQ (DI)(R8*4), R12

// INTS begins a function of 8-bit activations.
#define INTS \
	BEGIN \
	EACH(CLEARF, 0, 0) \
	MOVQ a_b+32(FP), DX \
	MOVQ a_bs+40(FP), R10 \
	MOVQ a_n+48(FP), CX \
	LEAQ (R10)(R10*2), R11 \
	LEAQ (DX)(R10*4), R13

// EIGHTBITS adds the products of a group of four columns.
#define EIGHTBITS(g, w) \
	FETCH(64*g) \
	VMOVDQU64 64*g(SI), w \
	EACH(DOT, w, 4*g)

// LOWBITS loads two groups of four columns, without higher bits: to Z24 and Z25.
#define LOWBITS(at) \
	VMOVDQU64 at(SI), Z24 \
	VPSRLW $4, Z24, Z25 \
	VPANDD Z31, Z24, Z24 \
	VPANDD Z31, Z25, Z25

#define FOURBITS(j, OP) \
	FETCH(64*j) \
	LOWBITS(64*j) \
	EACH(OP, Z24, 8*j) \
	EACH(OP, Z25, 8*j+4)

// VALUES is FOURBITS for MXFP4.
#define VALUES(j) \
	FETCH(64*j) \
	LOWBITS(64*j) \
	VPSHUFB Z24, Z29, Z24 \
	VPSHUFB Z25, Z29, Z25 \
	EACH(DOT, Z24, 8*j) \
	EACH(DOT, Z25, 8*j+4)

// HIGHBITS loads the bits above the low four. LEFT, RIGHT and INPLACE add those of a group to w.
#define HIGHBITS(at) \
	FETCH(at) \
	VMOVDQU64 at(SI), Z26

#define LEFT(by, mask, w) \
	VPSLLW $by, Z26, Z28 \
	VPTERNLOGD.BCST $0xf8, mask<>(SB), Z28, w // w | Z28 & mask

#define RIGHT(by, mask, w) \
	VPSRLW $by, Z26, Z28 \
	VPTERNLOGD.BCST $0xf8, mask<>(SB), Z28, w

#define INPLACE(mask, w) \
	VPTERNLOGD.BCST $0xf8, mask<>(SB), Z26, w

// SIXBITS adds the products of half a part.
#define SIXBITS(h, OP) \
	FETCH(128*h) \
	HIGHBITS(256+64*h) \
	LOWBITS(128*h) \
	LEFT(4, bit45, Z24) \
	EACH(OP, Z24, 0) \
	LEFT(2, bit45, Z25) \
	EACH(OP, Z25, 4) \
	FETCH(128*h+64) \
	LOWBITS(128*h+64) \
	INPLACE(bit45, Z24) \
	EACH(OP, Z24, 8) \
	RIGHT(2, bit45, Z25) \
	EACH(OP, Z25, 12)

// SCALES loads a part's scales, integer scales and minimums.
#define SCALES(at) \
	VCVTPH2PS (BX), Z27 \
	VPMOVZXBD at(SI), Z29 \
	VCVTDQ2PS Z29, Z29 \
	VPMOVZXBD at+16(SI), Z26 \
	VCVTDQ2PS Z26, Z26 \
	VCVTPH2PS 32(BX), Z24 \
	VMULPS Z24, Z26, Z26

#define LOADF32(at, w)  VMOVUPS at(SI), w
#define LOADF16(at, w)  VCVTPH2PS at(SI), w
#define LOADBF16(at, w) \
	VPMOVZXWD at(SI), w \
	VPSLLD $16, w, w

#define NOTHING(at)

// FLOATS adds column after column: four at a time, then the rest. ODD prefetches the second and the fourth.
#define FLOATS(LOAD, size, ODD) \
	BEGIN \
	EACH(CLEAR, 0, 0) \
	MOVQ a_n+32(FP), CX \
	SUBQ $4, CX \
	JLT rest \
loop: \
	FETCH(0) \
	LOAD(0, Z16) \
	EACH(MULTIPLY, Z16, 0) \
	ODD(size) \
	LOAD(size, Z17) \
	EACH(MULTIPLY, Z17, 4) \
	FETCH(2*size) \
	LOAD(2*size, Z18) \
	EACH(MULTIPLY, Z18, 8) \
	ODD(3*size) \
	LOAD(3*size, Z19) \
	EACH(MULTIPLY, Z19, 12) \
	ADDQ $(4*size), SI \
	ADDQ $16, DI \
	STEP(16) \
	SUBQ $4, CX \
	JGE loop \
rest: \
	ADDQ $4, CX \
	JZ done \
one: \
	FETCH(0) \
	LOAD(0, Z16) \
	EACH(MULTIPLY, Z16, 0) \
	ADDQ $size, SI \
	ADDQ $4, DI \
	STEP(4) \
	DECQ CX \
	JNZ one \
done: \
	EACH(STORE, 0, 0) \
	VZEROUPPER \
	RET

#define NEXT4 \
	ADDQ $32, DI \
	ADDQ $16, DX

#define EACH EACH1
#define FETCH(at) PREFETCHT0 4096+at(SI)
#define NEXT NEXT4
#define STEP NOTHING
#define MULF32 ·mulF32z1
#define MULF16 ·mulF16z1
#define MULBF16 ·mulBF16z1
#define MULQ80 ·mulQ80z1
#define MULQ40 ·mulQ40z1
#define MULMX ·mulMXz1
#define MULQ4K ·mulQ4Kz1
#define MULQ5K ·mulQ5Kz1
#define MULQ6K ·mulQ6Kz1
#include "tile512_amd64.h"

#undef EACH
#undef FETCH
#define EACH EACH4
#define FETCH(at)
#undef MULF32
#undef MULF16
#undef MULBF16
#undef MULQ80
#undef MULQ40
#undef MULMX
#undef MULQ4K
#undef MULQ5K
#undef MULQ6K
#define MULF32 ·mulF32z4
#define MULF16 ·mulF16z4
#define MULBF16 ·mulBF16z4
#define MULQ80 ·mulQ80z4
#define MULQ40 ·mulQ40z4
#define MULMX ·mulMXz4
#define MULQ4K ·mulQ4Kz4
#define MULQ5K ·mulQ5Kz4
#define MULQ6K ·mulQ6Kz4
#include "tile512_amd64.h"

#undef EACH
#undef NEXT
#undef STEP
#define EACH EACH8
#define NEXT \
	NEXT4 \
	ADDQ $32, R12 \
	ADDQ $16, R13
#define STEP(n) ADDQ $n, R12
#undef MULF32
#undef MULF16
#undef MULBF16
#undef MULQ80
#undef MULQ40
#undef MULMX
#undef MULQ4K
#undef MULQ5K
#undef MULQ6K
#define MULF32 ·mulF32z8
#define MULF16 ·mulF16z8
#define MULBF16 ·mulBF16z8
#define MULQ80 ·mulQ80z8
#define MULQ40 ·mulQ40z8
#define MULMX ·mulMXz8
#define MULQ4K ·mulQ4Kz8
#define MULQ5K ·mulQ5Kz8
#define MULQ6K ·mulQ6Kz8
#include "tile512_amd64.h"
