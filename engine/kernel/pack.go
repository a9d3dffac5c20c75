package kernel

import "encoding/binary"

// packFloats interleaves values of n bytes: all rows' first, all rows' second, …
func packFloats(n int) func(tile []byte, rows [][]byte, cols int) {
	return func(tile []byte, rows [][]byte, cols int) {
		for r, row := range rows {
			for c := range cols {
				copy(tile[(c*Tile+r)*n:][:n], row[c*n:])
			}
		}
	}
}

// Offsets in a block of Q8_0: 544 bytes for 32 columns.
const (
	q80Bytes = 544
	q80Scale = 512
)

func packQ80(tile []byte, rows [][]byte, cols int) {
	for r, row := range rows {
		for b := range cols / 32 {
			src, dst := (*[34]byte)(row[34*b:]), (*[q80Bytes]byte)(tile[q80Bytes*b:])
			copy(dst[q80Scale+2*r:][:2], src[:])
			for i := 0; i < 32; i += 4 {
				q := binary.LittleEndian.Uint32(src[2+i:])
				binary.LittleEndian.PutUint32(dst[Tile*i+4*r:], q^0x80808080)
			}
		}
	}
}

func openQ80(o *opened, tile []byte, block int) {
	b := (*[q80Bytes]byte)(tile[q80Bytes*block:])
	halves(&o.scale, b[q80Scale:])
	for r := range o.q {
		for i := range 32 {
			o.q[r][i] = int16(b[i&^3*Tile+4*r+i&3]) - 128
		}
	}
}
