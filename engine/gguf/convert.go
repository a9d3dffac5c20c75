package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// F16ToF32 widens an IEEE 754 half.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	if h&0x7c00 == 0x7c00 { // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | uint32(h&0x3ff)<<13)
	}
	// The half's exponent bias is 15, the single's 127: scaling by 2^112 also brings subnormals to their value.
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// F32ToF16 narrows to an IEEE 754 half, rounding to nearest, ties to even.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN: keep it quiet
		return sign | 0x7e00
	case b >= 0x477ff000: // rounds to beyond 65504
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: subnormal; adding 0.5 puts the rounding at the right bit
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	default:
		return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
	}
}

// BF16ToF32 widens a bfloat16.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 narrows to a bfloat16, rounding to nearest, ties to even.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// QuantizeQ8_0 encodes values as Q8_0 blocks: per 32 values the scale max|x|/127
// as a half, then round(x/scale). It panics when len(x) is not a multiple of 32.
func QuantizeQ8_0(x []float32) []byte {
	if len(x)%Q8Block != 0 {
		panic(fmt.Sprintf("gguf: QuantizeQ8_0 of %d values, want a multiple of %d", len(x), Q8Block))
	}
	out := make([]byte, 0, len(x)/Q8Block*Q8Bytes)
	for ; len(x) > 0; x = x[Q8Block:] {
		var top float32
		for _, v := range x[:Q8Block] {
			top = max(top, v, -v)
		}
		d := top / 127
		var inv float32
		if d != 0 {
			inv = 1 / d
		}
		out = binary.LittleEndian.AppendUint16(out, F32ToF16(d))
		for _, v := range x[:Q8Block] {
			out = append(out, byte(int8(max(-127, min(127, math.Round(float64(v*inv)))))))
		}
	}
	return out
}

// Encode stores values in the given type: F32, F16, BF16 or Q8_0. x must be whole
// rows; for Q8_0 a row is a multiple of 32 values.
func Encode(t Type, x []float32) ([]byte, error) {
	size, err := t.RowBytes(len(x))
	if err != nil {
		return nil, fmt.Errorf("encode tensor: %w", err)
	}
	out := make([]byte, 0, size)
	switch t {
	case F32:
		for _, v := range x {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	case F16:
		for _, v := range x {
			out = binary.LittleEndian.AppendUint16(out, F32ToF16(v))
		}
	case BF16:
		for _, v := range x {
			out = binary.LittleEndian.AppendUint16(out, F32ToBF16(v))
		}
	case Q8_0:
		out = QuantizeQ8_0(x)
	default:
		return nil, fmt.Errorf("encode tensor: %s cannot be written: want F32, F16, BF16 or Q8_0", t)
	}
	return out, nil
}

// Floats decodes the tensor's values into a new slice. Types other than F32,
// F16, BF16 and Q8_0 are refused.
func (t Tensor) Floats() ([]float32, error) {
	out := make([]float32, t.Len())
	switch t.Type {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i*4:]))
		}
	case F16:
		for i := range out {
			out[i] = F16ToF32(binary.LittleEndian.Uint16(t.Data[i*2:]))
		}
	case BF16:
		for i := range out {
			out[i] = BF16ToF32(binary.LittleEndian.Uint16(t.Data[i*2:]))
		}
	case Q8_0:
		for b := 0; b*Q8Block < len(out); b++ {
			block := t.Data[b*Q8Bytes:][:Q8Bytes]
			d := F16ToF32(binary.LittleEndian.Uint16(block))
			for j, q := range block[2:] {
				out[b*Q8Block+j] = d * float32(int8(q))
			}
		}
	default:
		return nil, fmt.Errorf("tensor %q has type %s; supported are F32, F16, BF16 and Q8_0", t.Name, t.Type)
	}
	return out, nil
}
