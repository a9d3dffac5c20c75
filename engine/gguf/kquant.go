package gguf

// Blocks of 256 values in groups of 16 or 32. Scales, and in some types minimums, are small integers times a half of
// the block: x = d·s·q - dmin·m. The order is ggml's (ggml-common.h, block_q2_K to block_q6_K).

// Of groups only the first 256/size scales and minimums count.
type groups struct {
	size int          // of a group: 16 or 32
	q    [KBlock]int8 // in the order of values
	s, m [16]int8     // scales and minimums
	d    float32
	dmin float32 // 0 without minimums
}

// values rounds the products where ggml does.
func (g *groups) values(out []float32) {
	for i := range KBlock / g.size {
		scale, low := float32(g.d*float32(g.s[i])), float32(g.dmin*float32(g.m[i]))
		dst := out[i*g.size:][:g.size]
		for j, q := range g.q[i*g.size:][:g.size] {
			dst[j] = float32(scale*float32(q)) - low
		}
	}
}

// fit chooses scales and minimums from 0 to most, and codes from 0 to top.
func (g *groups) fit(x []float32, top, most float32) {
	var scale, low [16]float32
	var topScale, topLow float32
	n := KBlock / g.size
	for i := range n {
		lo, hi := bounds(x[i*g.size:][:g.size])
		lo = min(lo, 0)
		scale[i], low[i] = (max(hi, 0)-lo)/top, -lo
		topScale, topLow = max(topScale, scale[i]), max(topLow, low[i])
	}
	g.d, g.dmin = storable(topScale/most), storable(topLow/most)
	for i := range n {
		g.s[i] = int8(min(most, round(scale[i]*inverse(g.d))))
		g.m[i] = int8(min(most, round(low[i]*inverse(g.dmin))))
		g.codes(x, i, 0, top)
	}
}

// fitSigned, without minimums, chooses codes from -top to top-1 and scales from -most to most-1.
func (g *groups) fitSigned(x []float32, top, most float32) {
	var scale [16]float32
	n := KBlock / g.size
	for i := range n {
		scale[i] = extreme(x[i*g.size:][:g.size]) / -top
	}
	g.d = storable(extreme(scale[:n]) / -most)
	for i := range n {
		g.s[i] = int8(max(-most, min(most-1, round(scale[i]*inverse(g.d)))))
		g.codes(x, i, -top, top-1)
	}
}

func (g *groups) codes(x []float32, i int, least, top float32) {
	inv := inverse(g.d * float32(g.s[i]))
	low := g.dmin * float32(g.m[i])
	for j := i * g.size; j < (i+1)*g.size; j++ {
		g.q[j] = int8(max(least, min(top, round((x[j]+low)*inv))))
	}
}

func storable(x float32) float32 { return F16ToF32(F32ToF16(x)) }

// Q2_K: 16 bytes (scale | minimum<<4) of groups of 16, 64 bytes of codes, half d, half dmin. Byte l of
// the h-th 32 bytes of codes holds values 128h + l, +32, +64, +96 from the lowest bits up.
func decodeQ2K(out []float32, b []byte) {
	g := groups{size: 16, d: half(b[80:]), dmin: half(b[82:])}
	for i, v := range b[:16] {
		g.s[i], g.m[i] = int8(v&15), int8(v>>4)
	}
	getCrumbs(&g, b[16:80])
	g.values(out)
}

func encodeQ2K(b []byte, x []float32) {
	g := groups{size: 16}
	g.fit(x, 3, 15)
	for i := range 16 {
		b[i] = byte(g.s[i]) | byte(g.m[i])<<4
	}
	putCrumbs(&g, b[16:80])
	putHalf(b[80:], g.d)
	putHalf(b[82:], g.dmin)
}

func getCrumbs(g *groups, b []byte) {
	for i := range g.q {
		g.q[i] = int8(b[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3)
	}
}

func putCrumbs(g *groups, b []byte) {
	for i, q := range g.q {
		b[i/128*32+i%32] |= byte(q&3) << (i % 128 / 32 * 2)
	}
}

// Q3_K: 32 bytes of third bits, 64 bytes of codes as in Q2_K, 12 bytes of scales, half d. The third bit
// of value i is bit i/32 of byte i%32; where it is 0, 4 is subtracted. A scale is six bits, less 32: the low
// four in the nibbles of the first 8 bytes, the high two in the last 4.
func decodeQ3K(out []float32, b []byte) {
	g := groups{size: 16, d: half(b[108:])}
	for i := range 16 {
		low := b[96+i%8] >> (i / 8 * 4) & 15
		g.s[i] = int8(low|b[104+i%4]>>(i/4*2)&3<<4) - 32
	}
	getCrumbs(&g, b[32:96])
	for i := range g.q {
		g.q[i] += int8(b[i%32]>>(i/32)&1)<<2 - 4
	}
	g.values(out)
}

func encodeQ3K(b []byte, x []float32) {
	g := groups{size: 16}
	g.fitSigned(x, 4, 32)
	for i := range 16 {
		s := byte(g.s[i] + 32)
		b[96+i%8] |= s & 15 << (i / 8 * 4)
		b[104+i%4] |= s >> 4 << (i / 4 * 2)
	}
	for i := range g.q {
		g.q[i] += 4
		b[i%32] |= byte(g.q[i]) >> 2 << (i / 32)
	}
	putCrumbs(&g, b[32:96])
	putHalf(b[108:], g.d)
}

// Q4_K: half d, half dmin, 12 bytes of scales and minimums of groups of 32, 128 bytes of nibbles. Byte l of
// the h-th 32 bytes of nibbles holds values 64h + l and 64h + l + 32.
func decodeQ4K(out []float32, b []byte) {
	g := groups{size: 32, d: half(b), dmin: half(b[2:])}
	getScales(&g, b[4:16])
	getNibbles(&g, b[16:])
	g.values(out)
}

func encodeQ4K(b []byte, x []float32) {
	g := groups{size: 32}
	g.fit(x, 15, 63)
	putHalf(b, g.d)
	putHalf(b[2:], g.dmin)
	putScales(&g, b[4:16])
	putNibbles(&g, b[16:])
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles: bit i/32 of byte i%32.
func decodeQ5K(out []float32, b []byte) {
	g := groups{size: 32, d: half(b), dmin: half(b[2:])}
	getScales(&g, b[4:16])
	getNibbles(&g, b[48:])
	for i := range g.q {
		g.q[i] |= int8(b[16+i%32]>>(i/32)&1) << 4
	}
	g.values(out)
}

func encodeQ5K(b []byte, x []float32) {
	g := groups{size: 32}
	g.fit(x, 31, 63)
	putHalf(b, g.d)
	putHalf(b[2:], g.dmin)
	putScales(&g, b[4:16])
	putNibbles(&g, b[48:])
	for i, q := range g.q {
		b[16+i%32] |= byte(q) >> 4 << (i / 32)
	}
}

// getScales reads 8 scales and 8 minimums of six bits. Groups 0…3 have theirs in the low bits of
// bytes 0…3 and 4…7. Groups 4…7 have the low four bits in bytes 8…11, and the high two in the
// free bits of bytes 0…7.
func getScales(g *groups, b []byte) {
	for i := range 4 {
		g.s[i], g.m[i] = int8(b[i]&63), int8(b[i+4]&63)
		g.s[i+4] = int8(b[i+8]&15 | b[i]>>6<<4)
		g.m[i+4] = int8(b[i+8]>>4 | b[i+4]>>6<<4)
	}
}

func putScales(g *groups, b []byte) {
	for i := range 4 {
		b[i] = byte(g.s[i]) | byte(g.s[i+4])>>4<<6
		b[i+4] = byte(g.m[i]) | byte(g.m[i+4])>>4<<6
		b[i+8] = byte(g.s[i+4])&15 | byte(g.m[i+4])<<4
	}
}

func getNibbles(g *groups, b []byte) {
	for i := range g.q {
		g.q[i] = int8(b[i/64*32+i%32] >> (i % 64 / 32 * 4) & 15)
	}
}

func putNibbles(g *groups, b []byte) {
	for i, q := range g.q {
		b[i/64*32+i%32] |= byte(q&15) << (i % 64 / 32 * 4)
	}
}

// Q6_K: 128 bytes of nibbles, 64 bytes of fifth and sixth bits, 16 signed scales of groups of 16, half d.
// In the h-th half, byte l of the 64 bytes of nibbles holds values 128h + l and 128h + l + 64; the high bits
// lie as the codes of Q2_K. 32 is subtracted.
func decodeQ6K(out []float32, b []byte) {
	g := groups{size: 16, d: half(b[208:])}
	for i, v := range b[192:208] {
		g.s[i] = int8(v)
	}
	getCrumbs(&g, b[128:192])
	for i := range g.q {
		low := b[i/128*64+i%64] >> (i % 128 / 64 * 4) & 15
		g.q[i] = g.q[i]<<4 | int8(low) - 32
	}
	g.values(out)
}

func encodeQ6K(b []byte, x []float32) {
	g := groups{size: 16}
	g.fitSigned(x, 32, 128)
	for i, s := range g.s {
		b[192+i] = byte(s)
	}
	for i, q := range g.q {
		q += 32
		b[i/128*64+i%64] |= byte(q&15) << (i % 128 / 64 * 4)
		g.q[i] = q >> 4
	}
	putCrumbs(&g, b[128:192])
	putHalf(b[208:], g.d)
}
