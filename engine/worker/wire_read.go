package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// After reader's first failure every method returns zero.
type reader struct {
	b   []byte
	err error
}

var errCut = errors.New("it is cut off")

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

// end returns the first failure, or an error if bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d bytes are left over", len(r.b))
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("%w", errCut)
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := uint64(r.b[0])
		r.b = r.b[1:]
		return v
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("a number is cut off, or too long")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) svarint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) id(last *uint64) uint64 {
	*last += uint64(r.svarint())
	return *last
}

func (r *reader) size(most int) int {
	v := r.uvarint()
	if v > uint64(most) {
		r.fail("a number is %d: want at most %d", v, most)
		return 0
	}
	return int(v)
}

func (r *reader) int32() int32 { return int32(r.size(math.MaxInt32)) }

// count reads how many things of at least least bytes follow.
func (r *reader) count(least int) int {
	v := r.uvarint()
	if v > uint64(len(r.b)/least) {
		r.fail("%d things are to follow in %d bytes", v, len(r.b))
		return 0
	}
	return int(v)
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail("%w", errCut)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) word() uint64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (r *reader) float() float32 {
	b := r.bytes(4)
	if b == nil {
		return 0
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}
