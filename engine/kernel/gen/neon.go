package main

import (
	"fmt"
	"strings"
)

// neon writes assembly for arm64. Go's assembler has no mnemonics for most vector instructions on
// numbers. They are written as words, each with the instruction in Arm's own syntax beside it.
//
// It does not use Go's integer registers R16 and R17 (linker), R18 (system), R27 (assembler), R28 (goroutine),
// R29 and R30 (frame).
type neon struct{ asm }

func (a *neon) head() {}

// word writes an instruction that the assembler has no name for.
func (a *neon) word(bits uint32, format string, args ...any) {
	a.op("WORD $0x%08x // %s", bits, fmt.Sprintf(format, args...))
}

// The words of instructions on whole registers, with all register numbers zero.
var (
	three = map[string]uint32{ // d = n op m
		"FADD S4": 0x4e20d400, "FSUB S4": 0x4ea0d400, "FMUL S4": 0x6e20dc00, "FDIV S4": 0x6e20fc00,
		"FCMGT S4": 0x6ea0e400, "FCMGE S4": 0x6e20e400, "FCMEQ S4": 0x4e20e400,
		"MUL S4": 0x4ea09c00, "MLA S4": 0x4ea09400, "SMAX B16": 0x4e206400,
	}
	element = map[string]uint32{ // d = d op n · m[i], without d for MUL and FMUL
		"FMLA S4": 0x4f801000, "FMLS S4": 0x4f805000, "FMUL S4": 0x4f809000, "MUL S4": 0x4f808000, "SDOT S4": 0x4f80e000,
	}
	two = map[string]uint32{ // d = op n; the shapes are n's
		"SCVTF S4": 0x4e21d800, "FABS S4": 0x4ea0f800, "FNEG S4": 0x6ea0f800,
		"FCVTL H4": 0x0e217800, "FCVTL2 H8": 0x4e217800, "FCVTL S2": 0x0e617800, "FCVTL2 S4": 0x4e617800,
		"FCVTN S4": 0x0e216800, "FCVTN2 S4": 0x4e216800,
		"SHLL H4": 0x2e613800, "SHLL2 H8": 0x6e613800, // by 16
		"SXTL B8": 0x0f08a400, "SXTL2 B16": 0x4f08a400, "SXTL H4": 0x0f10a400, "SXTL2 H8": 0x4f10a400,
		"FMAXV S4": 0x6e30f800, "SADDLV B8": 0x0e303800, "SADDLV B16": 0x4e303800,
	}
)

// name splits an entry's name and writes its shape as Arm does: S4 is 4s.
func name(entry string) (op, shape string) {
	op, shape, _ = strings.Cut(entry, " ")
	return strings.ToLower(op), shape[1:] + strings.ToLower(shape[:1])
}

// three writes d = n op m.
func (a *neon) three(entry string, d, n, m int) {
	op, s := name(entry)
	a.word(find(three, entry)|reg(m)<<16|reg(n)<<5|reg(d), "%s v%d.%s, v%d.%s, v%d.%s", op, d, s, n, s, m, s)
}

// element writes d = n op m[i], or d = d op n·m[i]. An element of SDOT is four bytes.
func (a *neon) element(entry string, d, n, m, i int) {
	op, s := name(entry)
	from, of := s, "s"
	if op == "sdot" {
		from, of = "16b", "4b"
	}
	bits := find(element, entry) | reg(m)<<16 | reg(n)<<5 | reg(d) | reg(i&1)<<21 | reg(i>>1)<<11
	a.word(bits, "%s v%d.%s, v%d.%s, v%d.%s[%d]", op, d, s, n, from, m, of, i)
}

// two writes d = op n.
func (a *neon) two(entry string, d, n int) {
	op, s := name(entry)
	to := "v%d." + map[string]string{
		"fcvtl 4h": "4s", "fcvtl2 8h": "4s", "fcvtl 2s": "2d", "fcvtl2 4s": "2d", "fcvtn 4s": "4h", "fcvtn2 4s": "8h",
		"shll 4h": "4s", "shll2 8h": "4s", "sxtl 8b": "8h", "sxtl2 16b": "8h", "sxtl 4h": "4s", "sxtl2 8h": "4s",
	}[op+" "+s]
	switch {
	case op == "fmaxv":
		to = "s%d"
	case op == "saddlv":
		to = "h%d"
	case to == "v%d.":
		to += s
	}
	by := ""
	if strings.HasPrefix(op, "shll") {
		by = ", #16"
	}
	a.word(find(two, entry)|reg(n)<<5|reg(d), "%s "+to+", v%d.%s%s", op, d, n, s, by)
}

func find(words map[string]uint32, entry string) uint32 {
	w, ok := words[entry]
	if !ok {
		panic("gen: no word for " + entry)
	}
	return w
}

func reg(n int) uint32 {
	if n < 0 || n > 31 {
		panic(fmt.Sprintf("gen: no register %d", n))
	}
	return uint32(n)
}

// zero clears a register.
func (a *neon) zero(d int) { a.op("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }

// splat fills a register with a 32-bit number, by way of R19.
func (a *neon) splat(d int, value uint32) {
	a.op("MOVW $%#08x, R19", value)
	a.op("VDUP R19, V%d.S4", d)
}

// bank allocates vector registers.
type bank struct{ used int }

func (b *bank) take(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = b.used
		b.used++
	}
	if b.used > 32 {
		panic(fmt.Sprintf("gen: %d vector registers", b.used))
	}
	return r
}

func (b *bank) one() int { return b.take(1)[0] }

// rest returns the registers that are not allocated.
func (b *bank) rest() []int { return b.take(32 - b.used) }

// ring returns registers in turn, so that neighbouring steps do not wait for one another.
type ring struct {
	regs []int
	next int
}

func (r *ring) one() int {
	v := r.regs[r.next%len(r.regs)]
	r.next++
	return v
}
