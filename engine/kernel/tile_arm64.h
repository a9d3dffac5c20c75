// The functions of tile_arm64.s for one number of vectors, but for Q6_K. BEGIN clears the sums, FETCH loads activations,
// WEIGHTS and QUADS load and multiply the weights of a pass, the others work on its sums; PASSES does a step for each
// pass. The names of the functions are macros too.

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

TEXT MULQ80(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x80, VLOW
loop:
	FETCH
	PASSES(Q80PASS)
	ADD $544, R1
	SUBS $1, R6, R6
	BNE loop
	END

// NIBBLES multiplies two groups of four columns without higher bits, BITS with those that M1 and M2 merge.
#define NIBBLES(w, hi, acc, t, t2, t3, x, e, M1, M2) \
	AND16B(t, w, LOW) \
	USHR16B(w, w, 4) \
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

TEXT MULQ40(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x0f, VLOW
	MOVW $0xfffffff8, R19 // -8
	VDUP R19, VOFFSET
loop:
	FETCH
	PASSES(Q40PASS)
	ADD $288, R1
	SUBS $1, R6, R6
	BNE loop
	END

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

TEXT MULQ4K(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x0f, VLOW
loop:
	MOVD R1, R7
	ADD $64, R1
	MOVD $8, R8
part:
	FETCH
	PASSES(Q4KPASS)
	ADD $288, R1
	SUBS $1, R8, R8
	BNE part
	SUBS $1, R6, R6
	BNE loop
	END

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

TEXT MULQ5K(SB), NOSPLIT, $0-56
	INTS
	BEGIN
	VMOVI $0x0f, VLOW
	VMOVI $0x10, VHIGH
loop:
	MOVD R1, R7
	ADD $64, R1
	MOVD $8, R8
part:
	FETCH
	PASSES(Q5KPASS)
	ADD $352, R1
	SUBS $1, R8, R8
	BNE part
	SUBS $1, R6, R6
	BNE loop
	END

TEXT MULF32(SB), NOSPLIT, $0-40
	FLOATS(F32A, F32B, F32C)

TEXT MULF16(SB), NOSPLIT, $0-40
	FLOATS(F16A, F16B, F16C)

TEXT MULBF16(SB), NOSPLIT, $0-40
	FLOATS(BF16A, BF16B, BF16C)

#undef ZEROED
#undef OFFSETPASS
#undef EIGHTBITS
#undef FLIPPED
#undef Q80PASS
#undef NIBBLES
#undef BITS
#undef FOURBITS
#undef Q40PASS
#undef SCALED
#undef Q4KPASS
#undef Q5KPASS
