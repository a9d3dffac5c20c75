// Vector instructions on numbers, most of which Go's assembler has no mnemonics for. A name is Arm's with the shape of
// the operands, or of the source where it is another one. Operands are register numbers in Arm's order: the result first.
// With E the last operand is an element: a register's number and an index.

#define MOV16B(d, n)        WORD $(0x4ea01c00 | (n)<<16 | (n)<<5 | (d))
#define AND16B(d, n, m)     WORD $(0x4e201c00 | (m)<<16 | (n)<<5 | (d))
#define EOR16B(d, n, m)     WORD $(0x6e201c00 | (m)<<16 | (n)<<5 | (d))
#define UZP1_16B(d, n, m)   WORD $(0x4e001800 | (m)<<16 | (n)<<5 | (d))
#define UZP2_16B(d, n, m)   WORD $(0x4e005800 | (m)<<16 | (n)<<5 | (d))
#define TBL16B(d, n, m)     WORD $(0x4e000000 | (m)<<16 | (n)<<5 | (d)) // d = the bytes of n at m
#define BIT16B(d, n, m)     WORD $(0x6ea01c00 | (m)<<16 | (n)<<5 | (d)) // d = n where m has ones
#define SMAX16B(d, n, m)    WORD $(0x4e206400 | (m)<<16 | (n)<<5 | (d))
#define ADD4S(d, n, m)      WORD $(0x4ea08400 | (m)<<16 | (n)<<5 | (d))
#define MUL4S(d, n, m)      WORD $(0x4ea09c00 | (m)<<16 | (n)<<5 | (d))
#define MLA4S(d, n, m)      WORD $(0x4ea09400 | (m)<<16 | (n)<<5 | (d))
#define SHL16B(d, n, by)    WORD $(0x4f005400 | (8+(by))<<16 | (n)<<5 | (d))
#define USHR16B(d, n, by)   WORD $(0x6f000400 | (16-(by))<<16 | (n)<<5 | (d))
#define SHL4S(d, n, by)     WORD $(0x4f205400 | (by)<<16 | (n)<<5 | (d))
#define FADD4S(d, n, m)     WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define FSUB4S(d, n, m)     WORD $(0x4ea0d400 | (m)<<16 | (n)<<5 | (d))
#define FMUL4S(d, n, m)     WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define FDIV4S(d, n, m)     WORD $(0x6e20fc00 | (m)<<16 | (n)<<5 | (d))
#define FMLA4S(d, n, m)     WORD $(0x4e20cc00 | (m)<<16 | (n)<<5 | (d)) // d += n·m
#define FMLS4S(d, n, m)     WORD $(0x4ea0cc00 | (m)<<16 | (n)<<5 | (d))
#define FMLA2D(d, n, m)     WORD $(0x4e60cc00 | (m)<<16 | (n)<<5 | (d))
#define FCMGT4S(d, n, m)    WORD $(0x6ea0e400 | (m)<<16 | (n)<<5 | (d))
#define FCMGE4S(d, n, m)    WORD $(0x6e20e400 | (m)<<16 | (n)<<5 | (d))
#define FCMEQ4S(d, n, m)    WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))

#define ELEMENT(bits, d, n, m, i) WORD $(bits | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define FMLA4SE(d, n, m, i) ELEMENT(0x4f801000, d, n, m, i)
#define FMLS4SE(d, n, m, i) ELEMENT(0x4f805000, d, n, m, i)
#define FMUL4SE(d, n, m, i) ELEMENT(0x4f809000, d, n, m, i)
#define MUL4SE(d, n, m, i)  ELEMENT(0x4f808000, d, n, m, i)
#define SDOT4SE(d, n, m, i) ELEMENT(0x4f80e000, d, n, m, i) // an element is four bytes

#define FABS4S(d, n)        WORD $(0x4ea0f800 | (n)<<5 | (d))
#define FNEG4S(d, n)        WORD $(0x6ea0f800 | (n)<<5 | (d))
#define SCVTF4S(d, n)       WORD $(0x4e21d800 | (n)<<5 | (d))
#define FCVTL4H(d, n)       WORD $(0x0e217800 | (n)<<5 | (d)) // halves to floats, the lower four
#define FCVTL8H(d, n)       WORD $(0x4e217800 | (n)<<5 | (d)) // the upper four
#define FCVTL2S(d, n)       WORD $(0x0e617800 | (n)<<5 | (d))
#define FCVTL4S(d, n)       WORD $(0x4e617800 | (n)<<5 | (d))
#define FCVTN4H(d, n)       WORD $(0x0e216800 | (n)<<5 | (d)) // floats to halves, into the lower four
#define FCVTN8H(d, n)       WORD $(0x4e216800 | (n)<<5 | (d)) // into the upper four
#define SHLL4H(d, n)        WORD $(0x2e613800 | (n)<<5 | (d)) // by 16 bits
#define SHLL8H(d, n)        WORD $(0x6e613800 | (n)<<5 | (d))
#define UXTL8B(d, n)        WORD $(0x2f08a400 | (n)<<5 | (d))
#define UXTL16B(d, n)       WORD $(0x6f08a400 | (n)<<5 | (d))
#define UXTL4H(d, n)        WORD $(0x2f10a400 | (n)<<5 | (d))
#define UXTL8H(d, n)        WORD $(0x6f10a400 | (n)<<5 | (d))
#define SXTL8B(d, n)        WORD $(0x0f08a400 | (n)<<5 | (d))
#define SXTL16B(d, n)       WORD $(0x4f08a400 | (n)<<5 | (d))
#define SXTL4H(d, n)        WORD $(0x0f10a400 | (n)<<5 | (d))
#define SXTL8H(d, n)        WORD $(0x4f10a400 | (n)<<5 | (d))
#define FMAXV4S(d, n)       WORD $(0x6e30f800 | (n)<<5 | (d))
#define SADDLV16B(d, n)     WORD $(0x4e303800 | (n)<<5 | (d))
