package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Kind is a metadata value's type, with the format's numbering.
type Kind uint32

const (
	KindUint8   Kind = 0
	KindInt8    Kind = 1
	KindUint16  Kind = 2
	KindInt16   Kind = 3
	KindUint32  Kind = 4
	KindInt32   Kind = 5
	KindFloat32 Kind = 6
	KindBool    Kind = 7
	KindString  Kind = 8
	KindArray   Kind = 9
	KindUint64  Kind = 10
	KindInt64   Kind = 11
	KindFloat64 Kind = 12
)

var kindNames = strings.Fields(`uint8 int8 uint16 int16 uint32 int32 float32 bool string array uint64 int64 float64`)

// String returns the format's name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

func (k Kind) size() int {
	switch k {
	case KindUint8, KindInt8, KindBool:
		return 1
	case KindUint16, KindInt16:
		return 2
	case KindUint32, KindInt32, KindFloat32:
		return 4
	case KindUint64, KindInt64, KindFloat64:
		return 8
	default:
		return 0
	}
}

// value is at lo:hi, a scalar's or string's bytes, or all elements.
type value struct {
	kind, elem Kind // elem: of an array
	count      int  // of an array
	lo, hi     int
}

func (p *parser) value(key string) value {
	what := fmt.Sprintf("metadata key %q", key)
	v := value{kind: Kind(p.uint32("kind of " + what))}
	switch {
	case v.kind.size() > 0:
		v.lo = p.pos
		p.take(v.kind.size(), what)
		v.hi = p.pos
	case v.kind == KindString:
		b := p.bytes(what)
		v.lo, v.hi = p.pos-len(b), p.pos
	case v.kind == KindArray:
		return p.array(what, 1)
	default:
		p.fail(p.pos-4, "%s has unknown kind %d", what, uint32(v.kind))
	}
	return v
}

func (p *parser) array(what string, depth int) value {
	if depth > maxDepth {
		p.fail(p.pos, "%s nests arrays deeper than %d", what, maxDepth)
	}
	v := value{kind: KindArray, elem: Kind(p.uint32("element kind of " + what))}
	least := v.elem.size()
	switch {
	case least > 0:
	case v.elem == KindString:
		least = 8
	case v.elem == KindArray:
		least = 4 + 8
	default:
		p.fail(p.pos-4, "%s has elements of unknown kind %d", what, uint32(v.elem))
		return v
	}
	v.count = p.count(least, 0, "elements of "+what)
	v.lo = p.pos
	if n := v.elem.size(); n > 0 {
		p.take(n*v.count, what)
	} else {
		p.elements(v, what, depth)
	}
	v.hi = p.pos
	return v
}

func (p *parser) elements(v value, what string, depth int) {
	for i := 0; i < v.count && p.err == nil; i++ {
		if v.elem == KindArray {
			p.array(what, depth+1)
			continue
		}
		// No message is built for a large vocabulary.
		if p.left() >= 8 {
			if n := binary.LittleEndian.Uint64(p.data[p.pos:]); n <= uint64(p.left()-8) {
				p.pos += 8 + int(n)
				continue
			}
		}
		p.bytes("an element of " + what)
	}
}

// Keys returns all in file order. The caller must not change the slice.
func (f *File) Keys() []string { return f.keys }

// Kind returns a value's kind, and an array's elements' kind and number.
func (f *File) Kind(key string) (kind, elem Kind, count int, ok bool) {
	v, ok := f.values[key]
	return v.kind, v.elem, v.count, ok
}

// String reads a string. ok is false if the key is absent or of another kind, as for all readers.
func (f *File) String(key string) (s string, ok bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindString {
		return "", false
	}
	return string(f.data[v.lo:v.hi]), true
}

// Uint reads an integer of any width; negative ones count as absent.
func (f *File) Uint(key string) (uint64, bool) {
	v, ok := f.values[key]
	if !ok {
		return 0, false
	}
	n, signed, ok := integer(v.kind, f.data[v.lo:v.hi])
	if !ok || signed && int64(n) < 0 {
		return 0, false
	}
	return n, true
}

// Float reads a float32 or float64.
func (f *File) Float(key string) (float64, bool) {
	v, ok := f.values[key]
	if !ok {
		return 0, false
	}
	return float(v.kind, f.data[v.lo:v.hi])
}

// Bool reads a bool.
func (f *File) Bool(key string) (b, ok bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindBool {
		return false, false
	}
	return f.data[v.lo] != 0, true
}

// Strings reads strings, which share one copy of their bytes.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindArray || v.elem != KindString {
		return nil, false
	}
	all := string(f.data[v.lo:v.hi])
	out := make([]string, v.count)
	pos := 0
	for i := range out {
		n := int(binary.LittleEndian.Uint64(f.data[v.lo+pos:]))
		out[i] = all[pos+8 : pos+8+n]
		pos += 8 + n
	}
	return out, true
}

// Ints reads integers of any width; ok is false if one does not fit in an int32.
func (f *File) Ints(key string) ([]int32, bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindArray || v.elem.size() == 0 {
		return nil, false
	}
	out := make([]int32, v.count)
	size := v.elem.size()
	for i := range out {
		n, signed, ok := integer(v.elem, f.data[v.lo+i*size:][:size])
		if !ok || int64(n) != int64(int32(n)) || !signed && n > math.MaxInt32 {
			return nil, false
		}
		out[i] = int32(n)
	}
	return out, true
}

// Floats reads an array of float32 or float64.
func (f *File) Floats(key string) ([]float32, bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindArray || v.elem != KindFloat32 && v.elem != KindFloat64 {
		return nil, false
	}
	out := make([]float32, v.count)
	size := v.elem.size()
	for i := range out {
		x, _ := float(v.elem, f.data[v.lo+i*size:][:size])
		out[i] = float32(x)
	}
	return out, true
}

// Bools reads an array of bools.
func (f *File) Bools(key string) ([]bool, bool) {
	v, ok := f.values[key]
	if !ok || v.kind != KindArray || v.elem != KindBool {
		return nil, false
	}
	out := make([]bool, v.count)
	for i := range out {
		out[i] = f.data[v.lo+i] != 0
	}
	return out, true
}

// integer returns a signed scalar as its 64-bit two's complement.
func integer(k Kind, b []byte) (n uint64, signed, ok bool) {
	switch k {
	case KindUint8:
		return uint64(b[0]), false, true
	case KindInt8:
		return uint64(int64(int8(b[0]))), true, true
	case KindUint16:
		return uint64(binary.LittleEndian.Uint16(b)), false, true
	case KindInt16:
		return uint64(int64(int16(binary.LittleEndian.Uint16(b)))), true, true
	case KindUint32:
		return uint64(binary.LittleEndian.Uint32(b)), false, true
	case KindInt32:
		return uint64(int64(int32(binary.LittleEndian.Uint32(b)))), true, true
	case KindUint64:
		return binary.LittleEndian.Uint64(b), false, true
	case KindInt64:
		return binary.LittleEndian.Uint64(b), true, true
	default:
		return 0, false, false
	}
}

func float(k Kind, b []byte) (float64, bool) {
	switch k {
	case KindFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case KindFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	default:
		return 0, false
	}
}
