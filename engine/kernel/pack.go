package kernel

import "encoding/binary"

func packFloats(tile []byte, rows [][]byte, cols int) {
	for at := 0; at < cols; at += 64 { // within one page
		for r, row := range rows {
			for c := at; c < min(at+64, cols); c++ {
				binary.LittleEndian.PutUint32(tile[4*(Tile*c+r):], binary.LittleEndian.Uint32(row[4*c:]))
			}
		}
	}
}

func packHalves(tile []byte, rows [][]byte, cols int) {
	for at := 0; at < cols; at += 128 {
		for r, row := range rows {
			for c := at; c < min(at+128, cols); c++ {
				binary.LittleEndian.PutUint16(tile[2*(Tile*c+r):], binary.LittleEndian.Uint16(row[2*c:]))
			}
		}
	}
}

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
	o.single()
	for g := range 8 {
		for r := range Tile {
			o.put(r, g, binary.LittleEndian.Uint32(b[4*Tile*g+4*r:])^0x80808080)
		}
	}
}

func (o *opened) put(r, group int, q uint32) {
	binary.LittleEndian.PutUint32(o.q[r][4*group:], q)
}

func (o *opened) single() {
	for r := range Tile {
		o.times[0][r], o.times[1][r] = 1, 1
	}
}

// less subtracts n from each byte of q, which is at most 127, so that none borrows.
func less(q, n uint32) uint32 { return ((q | 0x80808080) - n) ^ 0x80808080 }
