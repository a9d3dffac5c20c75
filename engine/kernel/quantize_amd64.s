#include "textflag.h"

DATA c127<>+0(SB)/4, $127.0
GLOBL c127<>(SB), RODATA|NOPTR, $4

DATA round<>+0(SB)/4, $12582912.0 // 1.5·2^23
GLOBL round<>(SB), RODATA|NOPTR, $4

DATA least<>+0(SB)/8, $0x8181818181818181 // 8-bit: -127
GLOBL least<>(SB), RODATA|NOPTR, $8

DATA byteOnes<>+0(SB)/8, $0x0101010101010101
GLOBL byteOnes<>(SB), RODATA|NOPTR, $8

DATA wordOnes<>+0(SB)/8, $0x0001000100010001
GLOBL wordOnes<>(SB), RODATA|NOPTR, $8

// VPACKSSDW and VPACKSSWB leave fours of values in this order.
DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000500000001
DATA order<>+16(SB)/8, $0x0000000600000002
DATA order<>+24(SB)/8, $0x0000000700000003
GLOBL order<>(SB), RODATA|NOPTR, $32

// ROUND leaves the rounded integer of y·Y5 in its lowest byte, and extends its sign.
#define ROUND(y) \
	VMULPS Y5, y, y   \
	VADDPS Y14, y, y  \
	VPSLLD $24, y, y  \
	VPSRAD $24, y, y

// func quantizeAsm(q *int8, b *block, x *float32, n int)
TEXT ·quantizeAsm(SB), NOSPLIT, $0-32
	MOVQ q+0(FP), DI
	MOVQ b+8(FP), DX
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX
	VPCMPEQD Y15, Y15, Y15
	VPSRLD $1, Y15, Y15              // all but the sign
	VBROADCASTSS round<>(SB), Y14
	VPBROADCASTQ least<>(SB), Y13
	VMOVDQU order<>(SB), Y12
	VPBROADCASTQ byteOnes<>(SB), Y11
	VPBROADCASTQ wordOnes<>(SB), Y10
	VMOVSS c127<>(SB), X9
	VXORPS X8, X8, X8

loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3

	// X4: the largest absolute value. Of a NaN and a number the number stays.
	VANDPS Y15, Y0, Y4
	VMAXPS Y8, Y4, Y4
	VANDPS Y15, Y1, Y5
	VMAXPS Y4, Y5, Y4
	VANDPS Y15, Y2, Y5
	VMAXPS Y4, Y5, Y4
	VANDPS Y15, Y3, Y5
	VMAXPS Y4, Y5, Y4
	VEXTRACTF128 $1, Y4, X5
	VMAXPS X5, X4, X4
	VPERMILPS $0x4e, X4, X5
	VMAXPS X5, X4, X4
	VPERMILPS $0xb1, X4, X5
	VMAXPS X5, X4, X4

	VDIVSS X4, X9, X5                // 127/max, or 0
	VCMPSS $4, X8, X4, X6
	VANDPS X6, X5, X5
	VBROADCASTSS X5, Y5
	VDIVSS X9, X4, X4                // max/127: the scale
	ROUND(Y0)
	ROUND(Y1)
	ROUND(Y2)
	ROUND(Y3)
	VPACKSSDW Y1, Y0, Y0
	VPACKSSDW Y3, Y2, Y2
	VPACKSSWB Y2, Y0, Y0
	VPERMD Y0, Y12, Y0
	VPMAXSB Y13, Y0, Y0
	VMOVDQU Y0, (DI)

	// The sums of both halves.
	VPMADDUBSW Y0, Y11, Y0
	VPMADDWD Y10, Y0, Y0
	VPHADDD Y0, Y0, Y0
	VPHADDD Y0, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X2
	VPUNPCKLWD X1, X0, X0
	VMOVD X2, 8(DX)
	VMOVD X0, 12(DX)
	VCVTDQ2PS X2, X2
	VMULSS X4, X2, X2
	VMOVSS X4, (DX)
	VMOVSS X2, 4(DX)

	ADDQ $128, SI
	ADDQ $32, DI
	ADDQ $16, DX
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET
