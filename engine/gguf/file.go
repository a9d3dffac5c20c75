package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/rouse-dev/rouse/internal/ggufname"
)

// File is an open GGUF file, or several of one model. Its methods are safe for many goroutines, but Close must
// not run beside another.
type File struct {
	data   []byte // nil after Close
	mapped bool   // Close must unmap data

	keys    []string // in file order
	values  map[string]value
	tensors []Tensor // in file order
	index   map[string]int
	weights int     // where the tensors' data begin
	rest    []*File // of the model; their tensors are above

	close sync.Once
}

// Open maps a file and reads its header; also the other files that llama-gguf-split made. The error names the path, and
// the byte offset in an invalid file.
func Open(path string) (*File, error) {
	parts := ggufname.Parts(path)
	f, err := openPart(parts, 0)
	if err != nil {
		return nil, err
	}
	if err := f.join(parts); err != nil {
		return nil, errors.Join(fmt.Errorf("open model file %s: %w", path, err), f.Close())
	}
	return f, nil
}

// llama-gguf-split's keys.
const (
	keyParts   = "split.count"
	keyPart    = "split.no"            // from 0
	keyTensors = "split.tensors.count" // in all files
)

func openPart(parts []string, i int) (*File, error) {
	f, err := openFile(parts[i])
	if err != nil && len(parts) > 1 {
		err = fmt.Errorf("%w (it is file %d of the model's %d: put all into one folder)", err, i+1, len(parts))
	}
	return f, err
}

func (f *File) join(parts []string) error {
	count, _ := f.Uint(keyParts)
	switch {
	case count <= 1 && len(parts) == 1:
		return nil
	case count <= 1:
		return fmt.Errorf("by its name it is one of %d files, but %s is a complete model: rename it", len(parts), parts[0])
	case uint64(len(parts)) != count:
		return fmt.Errorf("it is one of %d files of a model: call them NAME-00001-of-%05[1]d.gguf and so on", count)
	}
	for i, name := range parts {
		p := f
		if i > 0 {
			var err error
			if p, err = openPart(parts, i); err != nil {
				return err
			}
			f.rest = append(f.rest, p)
		}
		no, _ := p.Uint(keyPart)
		if all, _ := p.Uint(keyParts); no != uint64(i) || all != count {
			return fmt.Errorf("%s has the metadata of file %d of %d, and the name of %d of %d: fetch or rename it", name, no+1, all, i+1, count)
		}
	}
	for i, p := range f.rest {
		for _, t := range p.tensors {
			if _, twice := f.index[t.Name]; twice {
				return fmt.Errorf("tensor %q of %s is in a file before it too: one of them belongs to another model", t.Name, parts[i+1])
			}
			f.index[t.Name] = len(f.tensors)
			f.tensors = append(f.tensors, t)
		}
	}
	if n, ok := f.Uint(keyTensors); ok && n != uint64(len(f.tensors)) {
		return fmt.Errorf("its %d files have %d tensors together, and %s says %d: one of them belongs to another model", count, len(f.tensors), parts[0], n)
	}
	return nil
}

func openFile(path string) (*File, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("open model file: %w", err)
	}
	p := &parser{data: data}
	f, err := p.file()
	if err != nil {
		_ = unmap(data)
		return nil, fmt.Errorf("open model file %s: %w", path, err)
	}
	f.mapped = true
	return f, nil
}

// Parse reads a model of one file from memory. data must not change while the File is in use.
func Parse(data []byte) (*File, error) {
	p := &parser{data: data}
	f, err := p.file()
	if err != nil {
		return nil, err
	}
	if n, _ := f.Uint(keyParts); n > 1 {
		return nil, fmt.Errorf("it is one of %d files of a model", n)
	}
	return f, nil
}

// Close undoes the mapping: tensor data returned earlier is invalid. It may be called twice.
func (f *File) Close() error {
	var err error
	f.close.Do(func() {
		data := f.data
		f.data, f.tensors, f.index, f.keys, f.values = nil, nil, nil, nil, nil
		if f.mapped {
			err = unmap(data)
		}
		for _, p := range f.rest {
			err = errors.Join(err, p.Close())
		}
	})
	if err != nil {
		return fmt.Errorf("unmap model file: %w", err)
	}
	return nil
}

// Release drops the mapping's pages from memory; the next access reads them again.
func (f *File) Release() error {
	if !f.mapped || f.data == nil {
		return nil
	}
	err := releasePages(f.data)
	for _, p := range f.rest {
		err = errors.Join(err, releasePages(p.data))
	}
	if err != nil {
		return fmt.Errorf("release model file pages: %w", err)
	}
	return nil
}

// sampled is in bytes per tensor.
const sampled = 64

// Fingerprint hashes the metadata and some bytes of each tensor, the same everywhere. It does not protect against
// forgery.
func (f *File) Fingerprint() uint64 {
	h := xxhash.New()
	for _, p := range append([]*File{f}, f.rest...) {
		_, _ = h.Write(p.data[:min(p.weights, len(p.data))])
	}
	for _, t := range f.tensors {
		at := max(0, len(t.Data)/2-sampled/2)
		_, _ = h.Write(t.Data[at:min(len(t.Data), at+sampled)])
	}
	return h.Sum64()
}

// Size returns the length of all files of the model, in bytes.
func (f *File) Size() int64 {
	size := int64(len(f.data))
	for _, p := range f.rest {
		size += p.Size()
	}
	return size
}

// Architecture returns general.architecture, or "".
func (f *File) Architecture() string {
	s, _ := f.String("general.architecture")
	return s
}

// Tensors returns all in file order. The caller must not change the slice.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

func mapFile(path string) ([]byte, error) {
	if at, err := os.Stat(path); err == nil && at.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 { // opening one may block
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s is a directory, not a GGUF file", path)
	}
	size := st.Size()
	if size < headerSize {
		return nil, fmt.Errorf("%s has %d bytes, a GGUF file has at least %d: the file is truncated or not GGUF", path, size, headerSize)
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%s has %d bytes, more than this platform can map", path, size)
	}
	data, err := mapBytes(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, nil
}
