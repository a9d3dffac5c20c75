package kernel

import (
	"encoding/binary"
	"math"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Offsets in tiles: see the package comment.
const (
	nibbleBytes = 256 // the low 4 bits

	q40Bytes = 288
	q40Scale = 256

	q4kHead, q4kPart = 64, 288
	q4kScale         = 256 // of one byte each; then 16 minimums

	q5kHead, q5kPart = 64, 352
	q5kHigh          = 256 // 64 bytes: the fifth bits
	q5kScale         = 320

	q6kHead, q6kPart = 32, 416
	q6kHigh          = 256 // 128 bytes: bits 4 and 5
	q6kScale         = 384 // two of one byte for each row
)

// eight is 32 values of a row, a byte each, in groups of four columns.
type eight [8]uint32

// Two neighbouring groups share bytes, the first in the lower half.
func (q *eight) putNibbles(part []byte, r int) {
	const low = 0x0f0f0f0f
	p := (*[nibbleBytes]byte)(part)
	for j := range 4 {
		binary.LittleEndian.PutUint32(p[64*j+4*r:], q[2*j]&low|q[2*j+1]&low<<4)
	}
}

// The bits above a value's are not cleared.
func (q *eight) take(src []byte, shift int) {
	s := (*[32]byte)(src)
	for g := range q {
		q[g] = binary.LittleEndian.Uint32(s[4*g:]) >> shift
	}
}

func nibbles(part []byte, r, group int) uint32 {
	return binary.LittleEndian.Uint32(part[group/2*64+4*r:]) >> (group & 1 * 4) & 0x0f0f0f0f
}

// packNibbles packs blocks of 18 bytes (Q4_0) or 17 (MXFP4).
func packNibbles(size int) func(tile []byte, rows [][]byte, cols int) {
	return func(tile []byte, rows [][]byte, cols int) {
		var q eight
		for r, row := range rows {
			for b := range cols / 32 {
				src, dst := row[size*b:][:size], tile[q40Bytes*b:][:q40Bytes]
				if copy(dst[q40Scale+2*r:][:2], src); size == 17 {
					scale := gguf.F32ToF16(float32(math.Ldexp(1, int(src[0])-128)))
					binary.LittleEndian.PutUint16(dst[q40Scale+2*r:], scale)
				}
				for g := range 4 {
					q[g] = binary.LittleEndian.Uint32(src[size-16+4*g:])
					q[g+4] = q[g] >> 4
				}
				q.putNibbles(dst, r)
			}
		}
	}
}

// mxValues has twice the values of MXFP4's codes. The assembly has them too.
const mxValues = "\x00\x01\x02\x03\x04\x06\x08\x0c\x00\xff\xfe\xfd\xfc\xfa\xf8\xf4"

func openMX(o *opened, tile []byte, block int) {
	b := tile[q40Bytes*block:][:q40Bytes]
	halves(&o.scale, b[q40Scale:])
	o.single()
	for g := range 8 {
		for r := range Tile {
			q := nibbles(b, r, g)
			o.put(r, g, uint32(mxValues[q&15])|uint32(mxValues[q>>8&15])<<8|uint32(mxValues[q>>16&15])<<16|uint32(mxValues[q>>24])<<24)
		}
	}
}

func openQ40(o *opened, tile []byte, block int) {
	b := tile[q40Bytes*block:][:q40Bytes]
	halves(&o.scale, b[q40Scale:])
	o.single()
	for g := range 8 {
		for r := range Tile {
			o.put(r, g, less(nibbles(b, r, g), 0x08080808))
		}
	}
}

// scalesK returns the 6-bit scale and minimum of part i.
func scalesK(s *[12]byte, i int) (scale, low byte) {
	if i < 4 {
		return s[i] & 63, s[i+4] & 63
	}
	return s[i+4]&15 | s[i-4]>>6<<4, s[i+4]>>4 | s[i]>>6<<4
}

func packQ4K(tile []byte, rows [][]byte, cols int) {
	const size = q4kHead + 8*q4kPart
	var q eight
	for r, row := range rows {
		for b := range cols / 256 {
			src, dst := (*[144]byte)(row[144*b:]), tile[size*b:][:size]
			copy(dst[2*r:][:2], src[:])
			copy(dst[32+2*r:][:2], src[2:])
			for i := range 8 {
				part := dst[q4kHead+q4kPart*i:][:q4kPart]
				part[q4kScale+r], part[q4kScale+Tile+r] = scalesK((*[12]byte)(src[4:]), i)
				q.take(src[16+i/2*32:], i&1*4)
				q.putNibbles(part, r)
			}
		}
	}
}

func (o *opened) openK(head, scales []byte) {
	halves(&o.scale, head)
	halves(&o.low, head[2*Tile:])
	for r := range Tile {
		o.times[0][r], o.times[1][r] = int32(scales[r]), int32(scales[r])
		o.low[r] *= float32(scales[Tile+r])
	}
	o.lows = true
}

func openQ4K(o *opened, tile []byte, block int) {
	b := tile[(q4kHead+8*q4kPart)*(block/8):]
	part := b[q4kHead+q4kPart*(block%8):][:q4kPart]
	o.openK(b, part[q4kScale:])
	for g := range 8 {
		for r := range Tile {
			o.put(r, g, nibbles(part, r, g))
		}
	}
}

func packQ5K(tile []byte, rows [][]byte, cols int) {
	const size = q5kHead + 8*q5kPart
	var q eight
	for r, row := range rows {
		for b := range cols / 256 {
			src, dst := (*[176]byte)(row[176*b:]), tile[size*b:][:size]
			copy(dst[2*r:][:2], src[:])
			copy(dst[32+2*r:][:2], src[2:])
			for i := range 8 {
				part := dst[q5kHead+q5kPart*i:][:q5kPart]
				part[q5kScale+r], part[q5kScale+Tile+r] = scalesK((*[12]byte)(src[4:]), i)
				q.take(src[48+i/2*32:], i&1*4)
				q.putNibbles(part, r)
				q.take(src[16:], i)
				var high uint32
				for g, v := range q {
					high |= v & 0x01010101 << g
				}
				binary.LittleEndian.PutUint32(part[q5kHigh+4*r:], high)
			}
		}
	}
}

func openQ5K(o *opened, tile []byte, block int) {
	b := tile[(q5kHead+8*q5kPart)*(block/8):]
	part := b[q5kHead+q5kPart*(block%8):][:q5kPart]
	o.openK(b, part[q5kScale:])
	for g := range 8 {
		for r := range Tile {
			high := binary.LittleEndian.Uint32(part[q5kHigh+4*r:]) >> g & 0x01010101
			o.put(r, g, nibbles(part, r, g)|high<<4)
		}
	}
}

func packQ6K(tile []byte, rows [][]byte, cols int) {
	const size = q6kHead + 8*q6kPart
	var q eight
	for r, row := range rows {
		for b := range cols / 256 {
			src, dst := (*[210]byte)(row[210*b:]), tile[size*b:][:size]
			copy(dst[2*r:][:2], src[208:])
			for i := range 8 {
				part := dst[q6kHead+q6kPart*i:][:q6kPart]
				copy(part[q6kScale+2*r:][:2], src[192+2*i:])
				half, k := i/4, i%4
				q.take(src[64*half+k&1*32:], k/2*4)
				q.putNibbles(part, r)
				q.take(src[128+32*half:], 2*k)
				for h := range 2 {
					var high uint32
					for g, v := range q[4*h : 4*h+4] {
						high |= v & 0x03030303 << (2 * g)
					}
					binary.LittleEndian.PutUint32(part[q6kHigh+64*h+4*r:], high)
				}
			}
		}
	}
}

func openQ6K(o *opened, tile []byte, block int) {
	b := tile[(q6kHead+8*q6kPart)*(block/8):]
	part := b[q6kHead+q6kPart*(block%8):][:q6kPart]
	halves(&o.scale, b)
	o.split = true
	for r := range Tile {
		o.times[0][r], o.times[1][r] = int32(int8(part[q6kScale+2*r])), int32(int8(part[q6kScale+2*r+1]))
	}
	for g := range 8 {
		for r := range Tile {
			high := binary.LittleEndian.Uint32(part[q6kHigh+g/4*64+4*r:]) >> (g % 4 * 2) & 0x03030303
			o.put(r, g, less(nibbles(part, r, g)|high<<4, 0x20202020))
		}
	}
}
