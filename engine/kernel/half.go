package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

// NarrowF16 rounds len(src) values to IEEE halves: to nearest, ties to even.
func NarrowF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := narrowVector(dst, src)
	for i, v := range src[n:] {
		dst[n+i] = gguf.F32ToF16(v)
	}
}
