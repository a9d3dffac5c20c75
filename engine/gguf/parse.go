package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// Limits of a file. They are far above any real model, and bound the memory that a hostile header can cost.
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

// parser reads the bytes of a file from front to back. pos never passes len(data).
type parser struct {
	data []byte
	pos  int
}

// fail returns an error that names the offset of the wrong bytes.
func fail(at int, format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", at, fmt.Sprintf(format, args...))
}

func (p *parser) left() int { return len(p.data) - p.pos }

// take returns the next n bytes.
func (p *parser) take(n int, what string) ([]byte, error) {
	if n < 0 || n > p.left() {
		return nil, fail(p.pos, "%s needs %d bytes and the file has %d left: truncated or damaged", what, n, p.left())
	}
	b := p.data[p.pos : p.pos+n : p.pos+n]
	p.pos += n
	return b, nil
}

func (p *parser) uint32(what string) (uint32, error) {
	b, err := p.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) uint64(what string) (uint64, error) {
	b, err := p.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads a number of things, each at least size bytes long.
func (p *parser) count(size, limit int, what string) (int, error) {
	at := p.pos
	n, err := p.uint64("number of " + what)
	if err != nil {
		return 0, err
	}
	if n > uint64(p.left()/size) {
		return 0, fail(at, "%d %s announced, but only %d bytes follow: truncated or damaged", n, what, p.left())
	}
	if limit > 0 && n > uint64(limit) {
		return 0, fail(at, "%d %s announced, more than the %d that are accepted", n, what, limit)
	}
	return int(n), nil
}

// bytes reads a string: its length, then that many bytes.
func (p *parser) bytes(what string) ([]byte, error) {
	at := p.pos
	n, err := p.uint64("length of " + what)
	if err != nil {
		return nil, err
	}
	if n > uint64(p.left()) {
		return nil, fail(at, "%s is announced with %d bytes and the file has %d left: truncated or damaged", what, n, p.left())
	}
	return p.take(int(n), what)
}

func (p *parser) file() (*File, error) {
	f := &File{data: p.data}
	tensors, keys, err := p.header(f)
	if err != nil {
		return nil, err
	}
	if err := p.metadata(f, keys); err != nil {
		return nil, err
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	if err := p.tensorHeads(f, tensors, align); err != nil {
		return nil, err
	}
	return f, nil
}

func (p *parser) header(f *File) (tensors, keys int, err error) {
	m, err := p.take(len(magic), "magic")
	if err != nil {
		return 0, 0, err
	}
	if string(m) != magic {
		return 0, 0, fail(0, "magic is %q, want %q: this is not a GGUF file", m, magic)
	}
	v, err := p.uint32("version")
	if err != nil {
		return 0, 0, err
	}
	switch {
	case v == 2 || v == 3:
	case v&0xffff == 0 && v != 0:
		return 0, 0, fail(4, "the file is big-endian (version %d): convert it to little-endian", bits.ReverseBytes32(v))
	default:
		return 0, 0, fail(4, "version is %d, want 2 or 3: convert the model with a current converter", v)
	}
	f.version = int(v)
	at := p.pos
	nt, err := p.uint64("number of tensors")
	if err != nil {
		return 0, 0, err
	}
	keys, err = p.count(minKeyBytes, maxKeys, "metadata keys")
	if err != nil {
		return 0, 0, err
	}
	if nt > uint64(p.left()/minTensorHead) || nt > maxTensors {
		return 0, 0, fail(at, "%d tensors announced, but only %d bytes follow (limit %d tensors): truncated or damaged", nt, p.left(), maxTensors)
	}
	return int(nt), keys, nil
}

func (p *parser) metadata(f *File, n int) error {
	f.values = make(map[string]value, n)
	f.keys = make([]string, 0, n)
	for i := range n {
		at := p.pos
		k, err := p.bytes(fmt.Sprintf("metadata key %d", i))
		if err != nil {
			return err
		}
		if len(k) == 0 || len(k) > maxKeyLen {
			return fail(at, "metadata key %d has %d bytes, want 1 to %d", i, len(k), maxKeyLen)
		}
		key := string(k)
		if _, twice := f.values[key]; twice {
			return fail(at, "metadata key %q occurs twice", key)
		}
		v, err := p.value(key)
		if err != nil {
			return err
		}
		f.values[key] = v
		f.keys = append(f.keys, key)
	}
	return nil
}

// alignment returns the boundary on which tensor data begins.
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

func (p *parser) tensorHeads(f *File, n, align int) error {
	f.tensors = make([]Tensor, 0, n)
	f.index = make(map[string]int, n)
	type place struct{ head, offset, size int }
	places := make([]place, 0, n)
	for i := range n {
		at := p.pos
		t, offset, size, err := p.tensorHead(i)
		if err != nil {
			return err
		}
		if _, twice := f.index[t.Name]; twice {
			return fail(at, "tensor %q occurs twice", t.Name)
		}
		if offset%uint64(align) != 0 {
			return fail(at, "tensor %q: data offset %d is not a multiple of the alignment %d", t.Name, offset, align)
		}
		if offset > uint64(len(p.data)) {
			return fail(at, "tensor %q: data offset %d lies outside the file of %d bytes: truncated or damaged", t.Name, offset, len(p.data))
		}
		f.index[t.Name] = i
		f.tensors = append(f.tensors, t)
		places = append(places, place{at, int(offset), size})
	}
	start := p.pos + (align-p.pos%align)%align
	f.weights = start
	total := 0
	for i, pl := range places {
		// Both terms are at most len(data), which an int holds, but their sum may not fit.
		if room := len(p.data) - pl.offset - start; room < 0 || pl.size > room {
			return fail(pl.head, "tensor %q: %d bytes at data offset %d (file offset %d) end beyond the file of %d bytes: truncated or damaged",
				f.tensors[i].Name, pl.size, pl.offset, start+pl.offset, len(p.data))
		}
		if total += pl.size; total > len(p.data)-start { // decoders may rely on the file's size
			return fail(pl.head, "tensor %q: the tensors' data lie one over the other: damaged", f.tensors[i].Name)
		}
		lo := start + pl.offset
		f.tensors[i].Data = p.data[lo : lo+pl.size : lo+pl.size]
	}
	return nil
}

// tensorHead reads one entry of the tensor table.
func (p *parser) tensorHead(i int) (t Tensor, offset uint64, size int, err error) {
	at := p.pos
	name, err := p.bytes(fmt.Sprintf("name of tensor %d", i))
	if err != nil {
		return t, 0, 0, err
	}
	if len(name) == 0 || len(name) > maxKeyLen {
		return t, 0, 0, fail(at, "name of tensor %d has %d bytes, want 1 to %d", i, len(name), maxKeyLen)
	}
	t.Name = strings.ToValidUTF8(string(name), "\uFFFD")
	what := fmt.Sprintf("tensor %q", t.Name)
	nd, err := p.uint32("dimensions of " + what)
	if err != nil {
		return t, 0, 0, err
	}
	if nd == 0 || nd > maxDims {
		return t, 0, 0, fail(p.pos-4, "%s has %d dimensions, want 1 to %d", what, nd, maxDims)
	}
	t.Dims = make([]int, nd)
	for j := range t.Dims {
		d, err := p.uint64("dimensions of " + what)
		if err != nil {
			return t, 0, 0, err
		}
		if d > uint64(maxInt) {
			return t, 0, 0, fail(p.pos-8, "%s: dimension %d is %d, too large", what, j, d)
		}
		t.Dims[j] = int(d)
	}
	typ, err := p.uint32("type of " + what)
	if err != nil {
		return t, 0, 0, err
	}
	t.Type = Type(typ)
	size, err = tensorBytes(t.Type, t.Dims)
	if err != nil {
		return t, 0, 0, fail(p.pos-4, "%s: %s", what, err)
	}
	offset, err = p.uint64("offset of " + what)
	return t, offset, size, err
}
