package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Blocks of 32 values, in ggml's order (ggml-common.h, the block_q* structures). Values 0…15 lie in the low halves of
// the nibbles' bytes, 16…31 in the high ones; fifth bits are one little-endian word, bit j for value j.
//
//	Q4_0  half d,         16 bytes of nibbles q     x = d·(q-8)
//	Q4_1  half d, half m, 16 bytes of nibbles q     x = d·q + m
//	Q5_0  half d,         word, 16 bytes            x = d·(q-16)
//	Q5_1  half d, half m, word, 16 bytes            x = d·q + m
//	Q8_0  half d,         32 signed bytes q         x = d·q
const smallBlock = 32

// nibbleType is one of the first four types.
type nibbleType struct {
	high bool  // has fifth bits
	min  bool  // has a minimum
	zero int32 // subtracted from q
}

var nibbleTypes = map[Type]nibbleType{
	Q4_0: {zero: 8}, Q4_1: {min: true}, Q5_0: {high: true, zero: 16}, Q5_1: {high: true, min: true},
}

func half(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func putHalf(b []byte, x float32) { binary.LittleEndian.PutUint16(b, F32ToF16(x)) }

func (n nibbleType) parts(b []byte) (head, high, low []byte) {
	at := 2
	if n.min {
		at = 4
	}
	head, b = b[:at], b[at:]
	if n.high {
		high, b = b[:4], b[4:]
	}
	return head, high, b
}

func (n nibbleType) decode(out []float32, block []byte) {
	head, high, low := n.parts(block)
	d, m := half(head), float32(0)
	if n.min {
		m = half(head[2:])
	}
	var bits uint32
	if n.high {
		bits = binary.LittleEndian.Uint32(high)
	}
	for j := range smallBlock {
		q := int32(low[j%16]>>(j/16*4)) & 15
		q |= int32(bits>>j&1) << 4
		out[j] = float32(d * float32(q-n.zero))
		if n.min {
			out[j] += m
		}
	}
}

// encode's d makes the largest value, or the range, use all codes.
func (n nibbleType) encode(block []byte, x []float32) {
	head, high, low := n.parts(block)
	top := float32(15)
	if n.high {
		top = 31
	}
	var d, m float32
	if n.min {
		lo, hi := bounds(x)
		d, m = (hi-lo)/top, lo
		putHalf(head[2:], m)
	} else {
		d = extreme(x) / -float32(n.zero)
	}
	putHalf(head, d)
	inv := inverse(d)
	var bits uint32
	for j, v := range x {
		q := uint32(max(0, min(top, round((v-m)*inv)+float32(n.zero))))
		low[j%16] |= byte(q&15) << (j / 16 * 4)
		bits |= q >> 4 << j
	}
	if n.high {
		binary.LittleEndian.PutUint32(high, bits)
	}
}

func extreme(x []float32) float32 {
	var e, top float32
	for _, v := range x {
		if a := max(v, -v); a > top {
			e, top = v, a
		}
	}
	return e
}

func bounds(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

func round(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

func decodeQ8(out []float32, block []byte) {
	d := half(block)
	for j, q := range block[2:Q8Bytes] {
		out[j] = d * float32(int8(q))
	}
}

func encodeQ8(block []byte, x []float32) {
	d := extreme(x) / 127
	d = max(d, -d)
	putHalf(block, d)
	inv := inverse(d)
	for j, v := range x {
		v *= inv
		block[2+j] = byte(int8(v + float32(math.Copysign(0.5, float64(v))))) // |v| ≤ 127 but for rounding
	}
}

// codec is for one block.
type codec struct {
	decode func(out []float32, block []byte)
	encode func(block []byte, x []float32) // block is all zeros
}

var codecs = map[Type]codec{
	Q4_0: nibbleCodec(Q4_0), Q4_1: nibbleCodec(Q4_1), Q5_0: nibbleCodec(Q5_0), Q5_1: nibbleCodec(Q5_1),
	Q8_0: {decodeQ8, encodeQ8},
	Q2_K: {decodeQ2K, encodeQ2K}, Q3_K: {decodeQ3K, encodeQ3K}, Q4_K: {decodeQ4K, encodeQ4K},
	Q5_K: {decodeQ5K, encodeQ5K}, Q6_K: {decodeQ6K, encodeQ6K},
	IQ4_NL: {decodeIQ4NL, encodeIQ4NL}, IQ4_XS: {decodeIQ4XS, encodeIQ4XS}, MXFP4: {decodeMX, encodeMX},
}

func nibbleCodec(t Type) codec {
	n := nibbleTypes[t]
	return codec{n.decode, n.encode}
}

// Decodable reports whether Decode and Encode support the type.
func (t Type) Decodable() bool {
	_, ok := codecs[t]
	return ok || t == F32 || t == F16 || t == BF16
}

// Decode writes the values of src to out. Any bytes decode to some numbers, also NaN and infinity. It fails if t is not
// Decodable, or len(src) not RowBytes(len(out)).
func Decode(t Type, out []float32, src []byte) error {
	size, err := t.RowBytes(len(out))
	switch {
	case err != nil:
		return fmt.Errorf("decode values: %w", err)
	case size != len(src):
		return fmt.Errorf("decode values: %d values of %s take %d bytes, got %d", len(out), t, size, len(src))
	}
	switch t {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[i*4:]))
		}
	case F16:
		for i := range out {
			out[i] = half(src[i*2:])
		}
	case BF16:
		for i := range out {
			out[i] = BF16ToF32(binary.LittleEndian.Uint16(src[i*2:]))
		}
	default:
		c, ok := codecs[t]
		if !ok {
			return fmt.Errorf("decode values: %s is not supported; supported are %s", t, decodable)
		}
		l := layouts[t]
		for len(src) > 0 {
			c.decode(out[:l.values], src[:l.bytes])
			out, src = out[l.values:], src[l.bytes:]
		}
	}
	return nil
}

const decodable = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4"

// Encode encodes whole rows in any Decodable type, by each block's range; llama-quantize loses less.
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
	default:
		c, ok := codecs[t]
		if !ok {
			return nil, fmt.Errorf("encode tensor: %s cannot be written: want %s", t, decodable)
		}
		out = out[:size]
		l := layouts[t]
		for b := out; len(b) > 0; b, x = b[l.bytes:], x[l.values:] {
			c.encode(b[:l.bytes], x[:l.values])
		}
	}
	return out, nil
}

// Floats decodes the values into a new slice.
func (t Tensor) Floats() ([]float32, error) {
	out := make([]float32, t.Len())
	if err := Decode(t.Type, out, t.Data); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return out, nil
}
