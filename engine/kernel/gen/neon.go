package main

import (
	"fmt"
	"strings"
)

// neon writes assembly for arm64, with the macros of neon_arm64.h.
//
// It does not use Go's integer registers R16 and R17 (linker), R18 (system), R27 (assembler), R28 (goroutine),
// R29 and R30 (frame).
type neon struct{ asm }

func (a *neon) head() { a.line("#include \"neon_arm64.h\"") }

// vector writes an instruction of neon_arm64.h. Its operands are register numbers, the result first.
func (a *neon) vector(name string, operands ...int) {
	a.op("%s(%s)", name, strings.Trim(strings.ReplaceAll(fmt.Sprint(operands), " ", ", "), "[]"))
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
