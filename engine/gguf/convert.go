package gguf

import "math"

// F16ToF32 widens an IEEE 754 half, small enough to be inlined.
func F16ToF32(h uint16) float32 {
	// The shift leaves the sign on top, the mask clears its copies. Exponent biases are 15 and 127: 2^112 makes up for
	// it.
	b := uint32(int32(int16(h))<<13) & 0x8fffe000
	if h&0x7c00 == 0x7c00 { // infinity, NaN
		return math.Float32frombits(b | 0x7f800000)
	}
	return math.Float32frombits(b) * 0x1p112
}

// F32ToF16 narrows to an IEEE 754 half, to nearest, ties to even; beyond 65504 to infinity.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN stays quiet
		return sign | 0x7e00 | uint16(b>>13)&0x1ff
	case b >= 0x477ff000: // rounds to beyond 65504
		return sign | 0x7c00
	case b < 0x38800000: // subnormal: adding 0.5 puts the rounding at the right bit
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	default:
		return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
	}
}

// BF16ToF32 widens a bfloat16.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 narrows to a bfloat16, to nearest, ties to even.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
