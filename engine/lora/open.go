package lora

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// MaxRank bounds an adapter's rank: beyond it the product is no longer small.
const MaxRank = 512

// Open reads an adapter for a model of shape c: a GGUF file of llama.cpp's convert_lora_to_gguf, or a folder as the
// PEFT library saves it (adapter_config.json and adapter_model.safetensors; the path may also name the latter).
// Nothing stays open.
func Open(path string, c model.Config) (*Adapter, error) {
	path = filepath.Clean(path)
	a, err := ReadFS(os.DirFS(filepath.Dir(path)), filepath.Base(path), c)
	if err != nil {
		return nil, fmt.Errorf("open adapter %s: %w", path, err)
	}
	a.Name = filepath.Base(path)
	return a, nil
}

// ReadFS reads a GGUF file or a PEFT folder from a file system.
func ReadFS(fsys fs.FS, path string, c model.Config) (*Adapter, error) {
	info, err := fs.Stat(fsys, path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		sub, err := fs.Sub(fsys, path)
		if err != nil {
			return nil, err
		}
		return ReadPEFT(sub, c)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a folder: want a GGUF file or a PEFT folder")
	case path == weightsFile:
		return ReadPEFT(fsys, c)
	case filepath.Ext(path) == ".safetensors":
		return nil, fmt.Errorf("weights of a PEFT adapter have the name %s", weightsFile)
	}
	data, err := readFile(fsys, path, c)
	if err != nil {
		return nil, err
	}
	return ParseGGUF(data, c)
}

// readFile refuses a file that is larger than an adapter of [MaxRank] for the model.
func readFile(fsys fs.FS, name string, c model.Config) ([]byte, error) {
	most := int64(28 * MaxRank * c.Layers * (c.Dim + c.FFN)) // of 7 matrices a layer, in float32
	if info, err := fs.Stat(fsys, name); err == nil && info.Size() > most {
		return nil, fmt.Errorf("it has %d bytes, and adapters for this model have less than %d: it may be a model", info.Size(), most)
	}
	return fs.ReadFile(fsys, name)
}

// ParseGGUF reads an adapter from the bytes of a GGUF file.
func ParseGGUF(data []byte, c model.Config) (*Adapter, error) {
	if bytes.HasPrefix(data, []byte("{")) || bytes.HasPrefix(data, []byte("PK")) {
		return nil, errors.New("it is no GGUF file: want GGUF, or the folder of a PEFT adapter with safetensors")
	}
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return fromGGUF(f, c)
}

// half is one matrix of a pair, [rows, cols], as in the file.
type half struct {
	name       string
	rows, cols int
	x          []float32
}

// found is a pair before it is cut to targets. scale is the file's own.
type found struct {
	a, b  half
	scale float32
}

type builder struct {
	c     model.Config
	pairs []placed
	rank  int
	err   error
}

type placed struct {
	layer  int
	target Target
	found
}

// Shape returns the number of outputs (rows) and inputs (cols) of a target's matrix.
func Shape(c model.Config, t Target) (rows, cols int) {
	switch t {
	case Q:
		return c.Heads * c.HeadDim, c.Dim
	case K, V:
		return c.KVHeads * c.HeadDim, c.Dim
	case O:
		return c.Dim, c.Heads * c.HeadDim
	case Gate, Up:
		return c.FFN, c.Dim
	default:
		return c.Dim, c.FFN
	}
}

var expertName = lazyregexp.New(`experts?[._]|_exps\.|_shexp\.|ffn_gate_inp|block_sparse_moe|mlp\.gate\.`)

func misplaced(name string) error {
	if expertName().MatchString(name) {
		return ofExperts(name)
	}
	return fmt.Errorf("tensor %q has no place: only the projections of attention and feed-forward layers can be adapted", name)
}

func ofExperts(name string) error {
	return fmt.Errorf("tensor %q changes a mixture of experts: only the attention of such models can be adapted, train the adapter for that alone", name)
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// add adds a pair for several targets if the file fuses their matrices, whose rows follow one another.
func (b *builder) add(layer int, targets []Target, p found) {
	if b.err != nil {
		return
	}
	rows, cols := 0, 0
	for _, t := range targets {
		r, c := Shape(b.c, t)
		rows, cols = rows+r, c
	}
	rank := p.a.rows
	switch {
	case layer < 0 || layer >= b.c.Layers:
		b.fail("%s is for layer %d, the model has the layers 0 to %d: the adapter is made for another model", p.a.name, layer, b.c.Layers-1)
	case b.c.Experts > 0 && targets[0] >= Gate:
		b.err = ofExperts(p.a.name)
	case rank < 1 || rank > MaxRank:
		b.fail("%s has rank %d: want 1 to %d", p.a.name, rank, MaxRank)
	case p.b.cols != rank:
		b.fail("%s has rank %d and %s has rank %d: the file is inconsistent", p.a.name, rank, p.b.name, p.b.cols)
	case p.a.cols != cols:
		b.fail("%s takes %d values, the model's matrix takes %d: the adapter is made for another model", p.a.name, p.a.cols, cols)
	case p.b.rows != rows:
		b.fail("%s gives %d values, the model's matrix gives %d: the adapter is made for another model", p.b.name, p.b.rows, rows)
	}
	if b.err != nil {
		return
	}
	b.rank = max(b.rank, rank)
	at := 0
	for _, t := range targets {
		r, _ := Shape(b.c, t)
		one := p
		one.b.rows, one.b.x = r, p.b.x[at*rank:(at+r)*rank]
		at += r
		for _, q := range b.pairs {
			if q.layer == layer && q.target == t {
				b.fail("%s: layer %d's %s is there twice", p.a.name, layer, t)
			}
		}
		b.pairs = append(b.pairs, placed{layer, t, one})
	}
}

// All pairs get one rank, padded with zeros, and one scale: others are multiplied into B.
func (b *builder) adapter() (*Adapter, error) {
	if b.err == nil && len(b.pairs) == 0 {
		b.err = errors.New("it changes nothing: it has no pair of low-rank matrices")
	}
	if b.err != nil {
		return nil, b.err
	}
	a := &Adapter{Rank: b.rank, Scale: b.commonScale(), Layers: make([][NumTargets]*Pair, b.c.Layers)}
	for _, p := range b.pairs {
		r := p.a.rows
		q := &Pair{A: make([]float32, b.rank*p.a.cols), B: make([]float32, p.b.rows*b.rank)}
		copy(q.A, p.a.x)
		for i := range p.b.rows {
			for j := range r {
				v := p.b.x[i*r+j]
				if p.scale != a.Scale {
					v *= p.scale / a.Scale
				}
				q.B[i*b.rank+j] = v
			}
		}
		for _, x := range [][]float32{q.A, q.B} {
			for _, v := range x {
				if v-v != 0 {
					return nil, fmt.Errorf("%s or %s holds %v: the file is damaged or its training diverged", p.a.name, p.b.name, v)
				}
			}
		}
		a.Layers[p.layer][p.target] = q
	}
	return a, nil
}
