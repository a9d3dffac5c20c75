#include "textflag.h"

// Blocks of a sequence lie far apart, where the processor does not expect the next read. So
// while a block is worked on, the one after it is fetched: NEXT sets to to that block's
// address, and stays on the last.
#define NEXT(to) \
	MOVQ R8, to \
	ADDQ $4, to \
	CMPQ CX, $1 \
	CMOVQEQ R8, to \
	MOVLQSX (to), to \
	IMULQ R9, to \
	ADDQ DX, to

// func scores1AVX2(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)
// One query with n blocks: two halves of the dimensions are summed apart. stride is in bytes.
TEXT ·scores1AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ keys+16(FP), DX
	MOVQ blocks+24(FP), R8
	MOVQ n+32(FP), CX
	MOVQ stride+40(FP), R9
	MOVQ d+48(FP), R10
	SHRQ $1, R10      // rows in a half
	MOVQ R10, R12
	SHLQ $5, R12      // a half of the keys, in bytes
	MOVQ R10, R13
	SHLQ $2, R13      // a half of the query, in bytes

scores1:
	MOVLQSX (R8), AX
	IMULQ R9, AX
	ADDQ DX, AX
	NEXT(R11)
	MOVQ SI, BX
	MOVQ R10, R15
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3

scores1row:
	PREFETCHT0 (R11)
	PREFETCHT0 (R11)(R12*1)
	VCVTPH2PS (AX), Y4
	VCVTPH2PS 16(AX), Y5
	VCVTPH2PS (AX)(R12*1), Y6
	VCVTPH2PS 16(AX)(R12*1), Y7
	VBROADCASTSS (BX), Y8
	VBROADCASTSS (BX)(R13*1), Y9
	VFMADD231PS Y4, Y8, Y0
	VFMADD231PS Y5, Y8, Y1
	VFMADD231PS Y6, Y9, Y2
	VFMADD231PS Y7, Y9, Y3
	ADDQ $32, AX
	ADDQ $32, R11
	ADDQ $4, BX
	DECQ R15
	JNZ scores1row
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, DI
	ADDQ $4, R8
	DECQ CX
	JNZ scores1
	VZEROUPPER
	RET

// ROW4 multiplies a row of keys at AX with dimension BX of four queries, R13 bytes apart.
#define ROW4 \
	VCVTPH2PS (AX), Y8 \
	VCVTPH2PS 16(AX), Y9 \
	VBROADCASTSS (BX), Y10 \
	VBROADCASTSS (BX)(R13*1), Y11 \
	VBROADCASTSS (BX)(R13*2), Y12 \
	VBROADCASTSS (BX)(R10*1), Y13 \
	VFMADD231PS Y8, Y10, Y0 \
	VFMADD231PS Y9, Y10, Y1 \
	VFMADD231PS Y8, Y11, Y2 \
	VFMADD231PS Y9, Y11, Y3 \
	VFMADD231PS Y8, Y12, Y4 \
	VFMADD231PS Y9, Y12, Y5 \
	VFMADD231PS Y8, Y13, Y6 \
	VFMADD231PS Y9, Y13, Y7 \
	ADDQ $32, AX \
	ADDQ $4, BX

#define ZERO8 \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
	VXORPS Y2, Y2, Y2 \
	VXORPS Y3, Y3, Y3 \
	VXORPS Y4, Y4, Y4 \
	VXORPS Y5, Y5, Y5 \
	VXORPS Y6, Y6, Y6 \
	VXORPS Y7, Y7, Y7

// func scores4AVX2(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)
// Four queries, d apart; their results are Span apart.
TEXT ·scores4AVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ keys+16(FP), DX
	MOVQ blocks+24(FP), R8
	MOVQ n+32(FP), CX
	MOVQ stride+40(FP), R9
	MOVQ d+48(FP), R12
	LEAQ 0(R12*4), R13       // a query, in bytes
	LEAQ 0(R13)(R13*2), R10  // three
	SHRQ $1, R12             // rows in a half

scores4:
	MOVLQSX (R8), AX
	IMULQ R9, AX
	ADDQ DX, AX
	NEXT(R11)
	MOVQ SI, BX
	MOVQ R12, R15
	ZERO8

scores4first:
	PREFETCHT0 (R11)
	ADDQ $32, R11
	ROW4
	DECQ R15
	JNZ scores4first
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 1024(DI)
	VMOVUPS Y3, 1056(DI)
	VMOVUPS Y4, 2048(DI)
	VMOVUPS Y5, 2080(DI)
	VMOVUPS Y6, 3072(DI)
	VMOVUPS Y7, 3104(DI)
	MOVQ R12, R15
	ZERO8

scores4second:
	PREFETCHT0 (R11)
	ADDQ $32, R11
	ROW4
	DECQ R15
	JNZ scores4second
	VADDPS (DI), Y0, Y0
	VADDPS 32(DI), Y1, Y1
	VADDPS 1024(DI), Y2, Y2
	VADDPS 1056(DI), Y3, Y3
	VADDPS 2048(DI), Y4, Y4
	VADDPS 2080(DI), Y5, Y5
	VADDPS 3072(DI), Y6, Y6
	VADDPS 3104(DI), Y7, Y7
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 1024(DI)
	VMOVUPS Y3, 1056(DI)
	VMOVUPS Y4, 2048(DI)
	VMOVUPS Y5, 2080(DI)
	VMOVUPS Y6, 3072(DI)
	VMOVUPS Y7, 3104(DI)
	ADDQ $64, DI
	ADDQ $4, R8
	DECQ CX
	JNZ scores4
	VZEROUPPER
	RET

#define LOAD8(p) \
	VMOVUPS (p), Y0 \
	VMOVUPS 32(p), Y1 \
	VMOVUPS 64(p), Y2 \
	VMOVUPS 96(p), Y3 \
	VMOVUPS 128(p), Y4 \
	VMOVUPS 160(p), Y5 \
	VMOVUPS 192(p), Y6 \
	VMOVUPS 224(p), Y7

// func mix1AVX2(acc, w *float32, values *uint16, blocks *int32, n, stride, d, rows int)
// One query: rows values of each of n blocks, times their weights, are added to acc in order.
// d is a multiple of 16.
TEXT ·mix1AVX2(SB), NOSPLIT, $16-64
	MOVQ acc+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ values+16(FP), DX
	MOVQ blocks+24(FP), R8
	MOVQ n+32(FP), CX
	MOVQ stride+40(FP), R9
	MOVQ d+48(FP), R10
	LEAQ 0(R10*2), R12 // a value, in bytes

mix1:
	MOVLQSX (R8), AX
	IMULQ R9, AX
	ADDQ DX, AX
	NEXT(R11)
	MOVQ DI, R13
	MOVQ R10, R15      // dimensions left

mix1by64:
	CMPQ R15, $64
	JLT mix1rest
	LOAD8(R13)
	MOVQ SI, BX
	MOVQ rows+56(FP), R14
	MOVQ AX, at-8(SP)
	MOVQ R11, next-16(SP)

mix1row:
	PREFETCHT0 (R11)
	PREFETCHT0 64(R11)
	VBROADCASTSS (BX), Y8
	VCVTPH2PS (AX), Y9
	VCVTPH2PS 16(AX), Y10
	VCVTPH2PS 32(AX), Y11
	VCVTPH2PS 48(AX), Y12
	VFMADD231PS Y9, Y8, Y0
	VFMADD231PS Y10, Y8, Y1
	VFMADD231PS Y11, Y8, Y2
	VFMADD231PS Y12, Y8, Y3
	VCVTPH2PS 64(AX), Y9
	VCVTPH2PS 80(AX), Y10
	VCVTPH2PS 96(AX), Y11
	VCVTPH2PS 112(AX), Y12
	VFMADD231PS Y9, Y8, Y4
	VFMADD231PS Y10, Y8, Y5
	VFMADD231PS Y11, Y8, Y6
	VFMADD231PS Y12, Y8, Y7
	ADDQ R12, AX
	ADDQ R12, R11
	ADDQ $4, BX
	DECQ R14
	JNZ mix1row
	MOVQ at-8(SP), AX
	MOVQ next-16(SP), R11
	VMOVUPS Y0, (R13)
	VMOVUPS Y1, 32(R13)
	VMOVUPS Y2, 64(R13)
	VMOVUPS Y3, 96(R13)
	VMOVUPS Y4, 128(R13)
	VMOVUPS Y5, 160(R13)
	VMOVUPS Y6, 192(R13)
	VMOVUPS Y7, 224(R13)
	ADDQ $128, AX
	ADDQ $128, R11
	ADDQ $256, R13
	SUBQ $64, R15
	JMP mix1by64

mix1rest:
	TESTQ R15, R15
	JZ mix1next
	VMOVUPS (R13), Y0
	VMOVUPS 32(R13), Y1
	MOVQ SI, BX
	MOVQ rows+56(FP), R14
	MOVQ AX, at-8(SP)
	MOVQ R11, next-16(SP)

mix1restrow:
	PREFETCHT0 (R11)
	VBROADCASTSS (BX), Y8
	VCVTPH2PS (AX), Y9
	VCVTPH2PS 16(AX), Y10
	VFMADD231PS Y9, Y8, Y0
	VFMADD231PS Y10, Y8, Y1
	ADDQ R12, AX
	ADDQ R12, R11
	ADDQ $4, BX
	DECQ R14
	JNZ mix1restrow
	MOVQ at-8(SP), AX
	MOVQ next-16(SP), R11
	VMOVUPS Y0, (R13)
	VMOVUPS Y1, 32(R13)
	ADDQ $32, AX
	ADDQ $32, R11
	ADDQ $64, R13
	SUBQ $16, R15
	JMP mix1rest

mix1next:
	ADDQ $64, SI
	ADDQ $4, R8
	DECQ CX
	JNZ mix1
	VZEROUPPER
	RET

// func mix4AVX2(acc, w *float32, values *uint16, blocks *int32, n, stride, d int)
// Four queries: acc are d apart, weights Span. d is a multiple of 16.
TEXT ·mix4AVX2(SB), NOSPLIT, $16-56
	MOVQ acc+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ values+16(FP), DX
	MOVQ blocks+24(FP), R8
	MOVQ n+32(FP), CX
	MOVQ stride+40(FP), R9
	MOVQ d+48(FP), R10
	LEAQ 0(R10*2), R12       // a value, in bytes
	LEAQ 0(R10*4), R13       // an acc, in bytes
	LEAQ 0(R13)(R13*2), R14  // three

mix4:
	MOVLQSX (R8), AX
	IMULQ R9, AX
	ADDQ DX, AX
	NEXT(R11)
	MOVQ DI, BX
	MOVQ d+48(FP), R15

mix4by16:
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVUPS (BX)(R13*1), Y2
	VMOVUPS 32(BX)(R13*1), Y3
	VMOVUPS (BX)(R13*2), Y4
	VMOVUPS 32(BX)(R13*2), Y5
	VMOVUPS (BX)(R14*1), Y6
	VMOVUPS 32(BX)(R14*1), Y7
	MOVQ SI, R10
	LEAQ 64(SI), R9
	MOVQ AX, at-8(SP)
	MOVQ R11, next-16(SP)

mix4row:
	PREFETCHT0 (R11)
	VCVTPH2PS (AX), Y8
	VCVTPH2PS 16(AX), Y9
	VBROADCASTSS (R10), Y10
	VBROADCASTSS 1024(R10), Y11
	VBROADCASTSS 2048(R10), Y12
	VBROADCASTSS 3072(R10), Y13
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	VFMADD231PS Y8, Y11, Y2
	VFMADD231PS Y9, Y11, Y3
	VFMADD231PS Y8, Y12, Y4
	VFMADD231PS Y9, Y12, Y5
	VFMADD231PS Y8, Y13, Y6
	VFMADD231PS Y9, Y13, Y7
	ADDQ R12, AX
	ADDQ R12, R11
	ADDQ $4, R10
	CMPQ R10, R9
	JNE mix4row
	MOVQ stride+40(FP), R9
	MOVQ at-8(SP), AX
	MOVQ next-16(SP), R11
	VMOVUPS Y0, (BX)
	VMOVUPS Y1, 32(BX)
	VMOVUPS Y2, (BX)(R13*1)
	VMOVUPS Y3, 32(BX)(R13*1)
	VMOVUPS Y4, (BX)(R13*2)
	VMOVUPS Y5, 32(BX)(R13*2)
	VMOVUPS Y6, (BX)(R14*1)
	VMOVUPS Y7, 32(BX)(R14*1)
	ADDQ $32, AX
	ADDQ $32, R11
	ADDQ $64, BX
	SUBQ $16, R15
	JNZ mix4by16
	ADDQ $64, SI
	ADDQ $4, R8
	DECQ CX
	JNZ mix4
	VZEROUPPER
	RET
