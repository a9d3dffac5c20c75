package gguf

import (
	"encoding/binary"
	"math"
)

// Codes of 4 bits stand for values of a table (ggml-common.h, kvalues_iq4nl). MXFP4's has OCP's E2M1, times two.
//
//	IQ4_NL  32 values: half d, 16 bytes of nibbles as in Q4_0                          x = d·table[q]
//	IQ4_XS  256 values: half d, 16 bits of high parts of scales, 4 bytes of low parts,
//	        for each group of 32 values 16 bytes of nibbles as in Q4_0                 x = d·(s-32)·table[q]
//	MXFP4   32 values: exponent e, one byte, 16 bytes of nibbles as in Q4_0             x = 2^(e-128)·table[q]
var (
	table4  = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	tableMX = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

func decodeTable(out []float32, nibbles []byte, d float32, table *[16]int8) {
	for j := range smallBlock {
		out[j] = d * float32(table[nibbles[j%16]>>(j/16*4)&15])
	}
}

func encodeTable(nibbles []byte, x []float32, d float32) {
	inv := inverse(d)
	for j, v := range x {
		nibbles[j%16] |= nearest4(v*inv) << (j / 16 * 4)
	}
}

func nearest4(v float32) byte {
	for i := range table4[1:] {
		if v < (float32(table4[i])+float32(table4[i+1]))/2 {
			return byte(i)
		}
	}
	return 15
}

func decodeIQ4NL(out []float32, b []byte) { decodeTable(out, b[2:], half(b), &table4) }

func encodeIQ4NL(b []byte, x []float32) {
	d := extreme(x) / -127
	putHalf(b, d)
	encodeTable(b[2:], x, d)
}

func decodeIQ4XS(out []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint16(b[2:])
	for g := range 8 {
		s := int(b[4+g/2]>>(g%2*4)&15) | int(high>>(2*g)&3)<<4
		decodeTable(out[32*g:], b[8+16*g:], d*float32(s-32), &table4)
	}
}

func encodeIQ4XS(b []byte, x []float32) {
	var scale [8]float32
	for g := range scale {
		scale[g] = extreme(x[32*g:][:32]) / -127
	}
	d := storable(extreme(scale[:]) / -32)
	putHalf(b, d)
	var high uint16
	for g, s := range scale {
		q := max(-32, min(31, round(s*inverse(d))))
		code := uint16(int8(q) + 32)
		b[4+g/2] |= byte(code&15) << (g % 2 * 4)
		high |= code >> 4 << (2 * g)
		encodeTable(b[8+16*g:], x[32*g:][:32], d*q)
	}
	binary.LittleEndian.PutUint16(b[2:], high)
}

func scaleMX(e byte) float32 { return float32(math.Ldexp(1, int(e)-128)) }

func decodeMX(out []float32, b []byte) { decodeTable(out, b[1:], scaleMX(b[0]), &tableMX) }

func encodeMX(b []byte, x []float32) {
	if top := float64(extreme(x)); top != 0 {
		b[0] = byte(max(0, min(254, math.Ilogb(top)+125))) // the largest value has the code of 4 to 6
	}
	inv := inverse(scaleMX(b[0]))
	for j, v := range x {
		best, least := 0, float32(math.MaxFloat32)
		for q, t := range tableMX {
			if d := v*inv - float32(t); max(d, -d) < least {
				best, least = q, max(d, -d)
			}
		}
		b[1+j%16] |= byte(best) << (j / 16 * 4)
	}
}
