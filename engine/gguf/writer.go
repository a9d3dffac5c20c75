package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Writer makes a GGUF version 3 file: set metadata, add tensors, Flush, which returns the first error of all. It
// belongs to one goroutine.
type Writer struct {
	dst     io.Writer
	meta    []byte // encoded keys and values
	keys    map[string]bool
	tensors []pending
	names   map[string]bool
	align   int
	err     error
}

type pending struct {
	name  string
	dims  []int
	typ   Type
	size  int
	write func(io.Writer) error
}

// NewWriter writes to w on Flush only.
func NewWriter(w io.Writer) *Writer {
	return &Writer{dst: w, keys: map[string]bool{}, names: map[string]bool{}, align: defaultAlign}
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// key appends a key, its kind, and numbers, bools or slices of them.
func (w *Writer) key(key string, k Kind, values ...any) {
	if key == "" || len(key) > maxKeyLen {
		w.fail(fmt.Errorf("metadata key %q has %d bytes, want 1 to %d", key, len(key), maxKeyLen))
	}
	if w.keys[key] {
		w.fail(fmt.Errorf("metadata key %q is set twice", key))
	}
	w.keys[key] = true
	w.meta = binary.LittleEndian.AppendUint32(appendString(w.meta, key), uint32(k))
	for _, v := range values {
		w.meta, _ = binary.Append(w.meta, binary.LittleEndian, v)
	}
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Set sets a key to a string, a bool, a number, or a slice of them: an int is a uint32 in the file, a float64 a float32.
// nil sets nothing. general.alignment also moves the tensors.
func (w *Writer) Set(key string, v any) {
	switch n := v.(type) {
	case int:
		v = uint32(n)
	case float64:
		v = float32(n)
	}
	switch v := v.(type) {
	case nil:
	case string:
		w.key(key, KindString)
		w.meta = appendString(w.meta, v)
	case []string:
		w.key(key, KindArray, uint32(KindString), uint64(len(v)))
		for _, s := range v {
			w.meta = appendString(w.meta, s)
		}
	case bool:
		w.key(key, KindBool, v)
	case []bool:
		w.key(key, KindArray, uint32(KindBool), uint64(len(v)), v)
	case []int32:
		w.key(key, KindArray, uint32(KindInt32), uint64(len(v)), v)
	case float32:
		w.key(key, KindFloat32, v)
	case []float32:
		w.key(key, KindArray, uint32(KindFloat32), uint64(len(v)), v)
	case uint64:
		w.key(key, KindUint64, v)
	case uint32:
		w.key(key, KindUint32, v)
		if key != keyAlignment {
			return
		}
		if v < 8 || v > maxAlign || v&(v-1) != 0 {
			w.fail(fmt.Errorf("%s is %d, want a power of two from 8 to %d", key, v, maxAlign))
			return
		}
		w.align = int(v)
	default:
		w.fail(fmt.Errorf("metadata key %q has a value of type %T, which is not supported", key, v))
	}
}

// Copy sets a key to f's value.
func (w *Writer) Copy(f *File, key string) {
	v, ok := f.values[key]
	if !ok {
		w.fail(fmt.Errorf("metadata key %q is not in the file to copy from", key))
		return
	}
	switch v.kind {
	case KindArray:
		w.key(key, v.kind, uint32(v.elem), uint64(v.count))
	case KindString:
		w.key(key, v.kind, uint64(v.hi-v.lo))
	default:
		w.key(key, v.kind)
	}
	w.meta = append(w.meta, f.data[v.lo:v.hi]...)
	if a, ok := f.Uint(key); ok && key == keyAlignment {
		w.align = int(a)
	}
}

// AddTensor adds a tensor from encoded bytes, which it keeps until Flush. dims[0] is the row length.
func (w *Writer) AddTensor(name string, dims []int, t Type, data []byte) {
	size, err := tensorBytes(t, dims)
	if err == nil && size != len(data) {
		w.fail(fmt.Errorf("tensor %q: %s %v has %d bytes, got %d", name, t, dims, size, len(data)))
		return
	}
	w.AddTensorFunc(name, dims, t, func(dst io.Writer) error {
		_, err := dst.Write(data)
		return err
	})
}

// AddTensorFunc adds a tensor whose bytes, exactly as many as it has, write writes during Flush.
func (w *Writer) AddTensorFunc(name string, dims []int, t Type, write func(io.Writer) error) {
	size, err := tensorBytes(t, dims)
	switch {
	case err != nil:
		w.fail(fmt.Errorf("tensor %q: %w", name, err))
	case name == "" || len(name) > maxKeyLen:
		w.fail(fmt.Errorf("tensor name %q has %d bytes, want 1 to %d", name, len(name), maxKeyLen))
	case w.names[name]:
		w.fail(fmt.Errorf("tensor %q is added twice", name))
	default:
		w.names[name] = true
		w.tensors = append(w.tensors, pending{name, append([]int(nil), dims...), t, size, write})
	}
}

// Flush writes the file, and must be the last call.
func (w *Writer) Flush() error {
	if w.err != nil {
		return fmt.Errorf("write gguf: %w", w.err)
	}
	err := w.flush()
	w.err = errors.New("the writer has been flushed")
	if err != nil {
		return fmt.Errorf("write gguf: %w", err)
	}
	return nil
}

func (w *Writer) flush() error {
	head := append([]byte(nil), magic...)
	head = binary.LittleEndian.AppendUint32(head, 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.keys)))
	head = append(head, w.meta...)
	offset := 0
	for _, t := range w.tensors {
		head = appendString(head, t.name)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.dims)))
		for _, d := range t.dims {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.typ))
		head = binary.LittleEndian.AppendUint64(head, uint64(offset))
		offset += t.size + w.padding(t.size)
	}
	head = append(head, make([]byte, w.padding(len(head)))...)
	out := bufio.NewWriterSize(w.dst, 1<<16)
	if _, err := out.Write(head); err != nil {
		return err
	}
	for _, t := range w.tensors {
		n := counter{dst: out}
		if err := t.write(&n); err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if n.n != t.size {
			return fmt.Errorf("tensor %q: %d bytes written, %s %v needs %d", t.name, n.n, t.typ, t.dims, t.size)
		}
		if _, err := out.Write(make([]byte, w.padding(t.size))); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (w *Writer) padding(n int) int { return (w.align - n%w.align) % w.align }

type counter struct {
	dst io.Writer
	n   int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.dst.Write(b)
	c.n += n
	return n, err
}
