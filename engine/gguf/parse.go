package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// Bounds of the memory that a hostile header costs.
const (
	maxKeys    = 1 << 16
	maxTensors = 1 << 18
	maxKeyLen  = 1<<16 - 1 // the format's own limit
	maxDims    = 4
	maxDepth   = 4 // arrays in arrays
	maxAlign   = 1 << 20

	headerSize    = 24 // magic, version, two counts
	minKeyBytes   = 8 + 4 + 1
	minTensorHead = 8 + 4 + 8 + 4 + 8
	defaultAlign  = 32
)

const magic = "GGUF"

// parser reads from front to back; pos never passes len(data). After the first failure its methods return zero.
type parser struct {
	data []byte
	pos  int
	err  error
}

// fail names the offset of the wrong bytes.
func (p *parser) fail(at int, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("byte %d: %s", at, fmt.Sprintf(format, args...))
	}
}

func (p *parser) left() int { return len(p.data) - p.pos }

// take returns nil after a failure.
func (p *parser) take(n int, what string) []byte {
	if n < 0 || n > p.left() {
		p.fail(p.pos, "%s needs %d bytes and the file has %d left: truncated or damaged", what, n, p.left())
	}
	if p.err != nil {
		return nil
	}
	b := p.data[p.pos : p.pos+n : p.pos+n]
	p.pos += n
	return b
}

func (p *parser) uint32(what string) uint32 {
	if b := p.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) uint64(what string) uint64 {
	if b := p.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a number of things of at least size bytes each.
func (p *parser) count(size, limit int, what string) int {
	at := p.pos
	n := p.uint64("number of " + what)
	if n > uint64(p.left()/size) {
		p.fail(at, "%d %s announced, but only %d bytes follow: truncated or damaged", n, what, p.left())
	}
	if limit > 0 && n > uint64(limit) {
		p.fail(at, "%d %s announced, more than the %d that are accepted", n, what, limit)
	}
	if p.err != nil {
		return 0
	}
	return int(n)
}

func (p *parser) bytes(what string) []byte {
	at := p.pos
	n := p.uint64("length of " + what)
	if n > uint64(p.left()) {
		p.fail(at, "%s is announced with %d bytes and the file has %d left: truncated or damaged", what, n, p.left())
	}
	if p.err != nil {
		return nil
	}
	return p.take(int(n), what)
}

func (p *parser) file() (*File, error) {
	f := &File{data: p.data}
	tensors, keys := p.header()
	p.metadata(f, keys)
	if p.err != nil {
		return nil, p.err
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	p.tensorHeads(f, tensors, align)
	if p.err != nil {
		return nil, p.err
	}
	return f, nil
}

func (p *parser) header() (tensors, keys int) {
	if m := p.take(len(magic), "magic"); m != nil && string(m) != magic {
		p.fail(0, "it does not begin with %q: this is not a GGUF file", magic)
	}
	v := p.uint32("version")
	switch {
	case v == 2 || v == 3:
	case v&0xffff == 0 && v != 0:
		p.fail(4, "the file is big-endian (version %d): convert it to little-endian", bits.ReverseBytes32(v))
	default:
		p.fail(4, "version is %d, want 2 or 3: convert the model with a current converter", v)
	}
	at := p.pos
	n := p.uint64("number of tensors")
	keys = p.count(minKeyBytes, maxKeys, "metadata keys")
	if n > uint64(p.left()/minTensorHead) || n > maxTensors {
		p.fail(at, "%d tensors announced, but only %d bytes follow (limit %d tensors): truncated or damaged", n, p.left(), maxTensors)
	}
	return int(n), keys
}

func (p *parser) metadata(f *File, n int) {
	f.values = make(map[string]value, n)
	f.keys = make([]string, 0, n)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		key := string(p.bytes(fmt.Sprintf("metadata key %d", i)))
		if len(key) == 0 || len(key) > maxKeyLen {
			p.fail(at, "metadata key %d has %d bytes, want 1 to %d", i, len(key), maxKeyLen)
		}
		if _, twice := f.values[key]; twice {
			p.fail(at, "metadata key %q occurs twice", key)
		}
		f.values[key] = p.value(key)
		f.keys = append(f.keys, key)
	}
}

func (f *File) alignment() (int, error) {
	if _, ok := f.values[keyAlignment]; !ok {
		return defaultAlign, nil
	}
	a, ok := f.Uint(keyAlignment)
	if !ok || a < 8 || a > maxAlign || a&(a-1) != 0 {
		return 0, fmt.Errorf("metadata key %s must be a power of two from 8 to %d, and is not", keyAlignment, maxAlign)
	}
	return int(a), nil
}

const keyAlignment = "general.alignment"

func (p *parser) tensorHeads(f *File, n, align int) {
	f.tensors = make([]Tensor, 0, n)
	f.index = make(map[string]int, n)
	type place struct{ head, offset, size int }
	places := make([]place, 0, n)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		t, offset, size := p.tensorHead(i)
		if _, twice := f.index[t.Name]; twice {
			p.fail(at, "tensor %q occurs twice", t.Name)
		}
		if offset%uint64(align) != 0 {
			p.fail(at, "tensor %q: data offset %d is not a multiple of the alignment %d", t.Name, offset, align)
		}
		if offset > uint64(len(p.data)) {
			p.fail(at, "tensor %q: data offset %d lies outside the file of %d bytes: truncated or damaged", t.Name, offset, len(p.data))
		}
		f.index[t.Name] = i
		f.tensors = append(f.tensors, t)
		places = append(places, place{at, int(offset), size})
	}
	start := p.pos + (align-p.pos%align)%align
	f.weights = start
	total := 0
	for i, pl := range places {
		// Both terms are at most len(data), but their sum may not fit in an int.
		if room := len(p.data) - pl.offset - start; room < 0 || pl.size > room {
			p.fail(pl.head, "tensor %q: %d bytes at data offset %d (file offset %d) end beyond the file of %d bytes: truncated or damaged",
				f.tensors[i].Name, pl.size, pl.offset, start+pl.offset, len(p.data))
		}
		if total += pl.size; total > len(p.data)-start { // decoders may rely on the file's size
			p.fail(pl.head, "tensor %q: the tensors' data lie one over the other: damaged", f.tensors[i].Name)
		}
		if p.err != nil {
			return
		}
		lo := start + pl.offset
		f.tensors[i].Data = p.data[lo : lo+pl.size : lo+pl.size]
	}
}

func (p *parser) tensorHead(i int) (t Tensor, offset uint64, size int) {
	at := p.pos
	name := p.bytes(fmt.Sprintf("name of tensor %d", i))
	if len(name) == 0 || len(name) > maxKeyLen {
		p.fail(at, "name of tensor %d has %d bytes, want 1 to %d", i, len(name), maxKeyLen)
	}
	t.Name = strings.ToValidUTF8(string(name), "\uFFFD")
	what := fmt.Sprintf("tensor %q", t.Name)
	n := p.uint32("dimensions of " + what)
	if n == 0 || n > maxDims {
		p.fail(p.pos-4, "%s has %d dimensions, want 1 to %d", what, n, maxDims)
		return t, 0, 0
	}
	t.Dims = make([]int, n)
	for j := range t.Dims {
		d := p.uint64("dimensions of " + what)
		if d > uint64(maxInt) {
			p.fail(p.pos-8, "%s: dimension %d is %d, too large", what, j, d)
		}
		t.Dims[j] = int(d)
	}
	t.Type = Type(p.uint32("type of " + what))
	size, err := tensorBytes(t.Type, t.Dims)
	if err != nil {
		p.fail(p.pos-4, "%s: %s", what, err)
	}
	return t, p.uint64("offset of " + what), size
}
