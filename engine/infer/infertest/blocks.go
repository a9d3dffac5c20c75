package infertest

import (
	"math/rand/v2"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Blocks returns the bytes of n values of a type with random codes and with finite scales of common sizes. The same
// arguments give the same bytes. It panics if n is no whole number of blocks or the type is not decodable.
func Blocks(t gguf.Type, n int) []byte {
	size, err := t.RowBytes(n)
	if err != nil || !t.Decodable() {
		panic("infertest: Blocks: " + t.String() + " has no such blocks")
	}
	r := rand.New(rand.NewPCG(uint64(t), 0x726f757365))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	step, _ := t.RowBytes(t.Block())
	for at := 0; at < size; at += step {
		block := b[at:][:step]
		switch t {
		case gguf.F32:
			block[3] = block[3]&0x80 | 0x3e // any sign
		case gguf.F16, gguf.BF16:
			block[1] = block[1]&0x80 | 0x3a | block[1]&1
		case gguf.MXFP4:
			block[0] = 112 + block[0]%16
		default:
			for _, h := range halves(t) {
				block[h+1] = block[h+1]&0x83 | 0x24
			}
		}
	}
	return b
}

func halves(t gguf.Type) []int {
	switch t {
	case gguf.Q4_1, gguf.Q5_1, gguf.Q4_K, gguf.Q5_K:
		return []int{0, 2}
	case gguf.Q2_K:
		return []int{80, 82}
	case gguf.Q3_K:
		return []int{108}
	case gguf.Q6_K:
		return []int{208}
	default:
		return []int{0}
	}
}
