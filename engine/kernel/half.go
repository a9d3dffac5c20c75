package kernel

import (
	"encoding/binary"
	"math"
)

// Half widens an IEEE 754 half. It is small enough to be inlined.
func Half(h uint16) float32 {
	// The arithmetic shift leaves the sign on top, the mask clears its copies. The half's
	// exponent bias is 15, the single's 127: 2^112 makes up for it, for subnormals too.
	b := uint32(int32(int16(h))<<13) & 0x8fffe000
	if h&0x7c00 == 0x7c00 { // infinity, NaN
		return math.Float32frombits(b | 0x7f800000)
	}
	return math.Float32frombits(b) * 0x1p112
}

// narrow rounds to an IEEE half, to nearest, ties to even. What is beyond 65504 becomes
// infinite.
func narrow(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN: keep it quiet
		return sign | 0x7e00 | uint16(b>>13)&0x1ff
	case b >= 0x477ff000: // rounds to beyond 65504
		return sign | 0x7c00
	case b < 0x38800000: // subnormal: adding 0.5 puts the rounding at the right bit
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	default:
		return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
	}
}

// NarrowF16 rounds len(src) values to IEEE halves: to nearest, ties to even.
func NarrowF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := narrowVector(dst, src)
	for i, v := range src[n:] {
		dst[n+i] = narrow(v)
	}
}

// WidenF16 decodes len(dst) halves from src.
func WidenF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	n := widenVector(dst, src)
	for i := n; i < len(dst); i++ {
		dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// WidenBF16 decodes len(dst) bfloat16 values from src.
func WidenBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}
