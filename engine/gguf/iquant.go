package gguf

import "encoding/binary"

// IQ4_NL and IQ4_XS store codes of 4 bits that stand for the values of a table, close to each other near zero where most
// weights are (ggml-common.h, kvalues_iq4nl).
//
//	IQ4_NL  32 values: half d, 16 bytes of nibbles as in Q4_0                          x = d·table[q]
//	IQ4_XS  256 values: half d, 16 bits of high parts of scales, 4 bytes of low parts,
//	        for each group of 32 values 16 bytes of nibbles as in Q4_0                 x = d·(s-32)·table[q]
var table4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeTable(out []float32, nibbles []byte, d float32) {
	for j := range smallBlock {
		out[j] = d * float32(table4[nibbles[j%16]>>(j/16*4)&15])
	}
}

func encodeTable(nibbles []byte, x []float32, d float32) {
	inv := inverse(d)
	for j, v := range x {
		nibbles[j%16] |= nearest4(v*inv) << (j / 16 * 4)
	}
}

// nearest4 returns the code of the value nearest to v.
func nearest4(v float32) byte {
	for i := range table4[1:] {
		if v < (float32(table4[i])+float32(table4[i+1]))/2 {
			return byte(i)
		}
	}
	return 15
}

func decodeIQ4NL(out []float32, b []byte) { decodeTable(out, b[2:], half(b)) }

func encodeIQ4NL(b []byte, x []float32) {
	d := extreme(x) / -127
	putHalf(b, d)
	encodeTable(b[2:], x, d)
}

func decodeIQ4XS(out []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint16(b[2:])
	for g := range 8 {
		s := int(b[4+g/2]>>(g%2*4)&15) | int(high>>(2*g)&3)<<4
		decodeTable(out[32*g:], b[8+16*g:], d*float32(s-32))
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
