package cpu

import (
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// adapter is a packed adapter. It stays in memory while the model sleeps.
type adapter struct {
	rank   int
	scale  float32
	layers [][lora.NumTargets]*pair
	bytes  int64
}

type pair struct {
	a kernel.Matrix // [rank, cols]
	b kernel.Matrix // [rows, rank]
}

func newAdapter(a *lora.Adapter, c model.Config) (*adapter, error) {
	switch {
	case a == nil:
		return nil, errors.New("there is no adapter")
	case !c.Plain():
		return nil, fmt.Errorf("models of the architecture %s take no adapters", c.Arch)
	case len(a.Layers) != c.Layers:
		return nil, fmt.Errorf("it is for %d layers, the model has %d", len(a.Layers), c.Layers)
	case a.Rank < 1:
		return nil, fmt.Errorf("its rank is %d, want at least 1", a.Rank)
	}
	out := &adapter{rank: a.Rank, scale: a.Scale, layers: make([][lora.NumTargets]*pair, c.Layers)}
	for i := range a.Layers {
		for t, p := range a.Layers[i] {
			if p == nil {
				continue
			}
			rows, cols := lora.Shape(c, lora.Target(t))
			switch {
			case c.Experts > 0 && lora.Target(t) >= lora.Gate:
				return nil, fmt.Errorf("layer %d: it changes %s, which a mixture of experts does not have", i, lora.Target(t))
			case len(p.A) != a.Rank*cols || len(p.B) != rows*a.Rank:
				return nil, fmt.Errorf("layer %d, %s: its matrices have %d and %d values, want %d·%d and %d·%d", i, lora.Target(t), len(p.A), len(p.B), a.Rank, cols, rows, a.Rank)
			}
			out.layers[i][t] = &pair{a: out.pack(p.A, a.Rank, cols), b: out.pack(p.B, rows, a.Rank)}
		}
	}
	return out, nil
}

func (a *adapter) pack(x []float32, rows, cols int) kernel.Matrix {
	data, err := gguf.Encode(gguf.F32, x)
	if err != nil {
		panic(err) // F32 supports any number of values
	}
	m := kernel.Matrix{Rows: rows, Cols: cols, Type: gguf.F32, Data: make([]byte, kernel.PackedBytes(gguf.F32, rows, cols))}
	kernel.Pack(m.Data, m.Type, rows, cols, data, 0, rows)
	a.bytes += int64(len(m.Data))
	return m
}

type batchAdapter struct {
	*adapter
	low [lora.NumTargets]kernel.Input // A·x of the adapter's tokens
}

func (s *step) adapter(a *adapter) *batchAdapter {
	if a == nil {
		return nil
	}
	for _, b := range s.adapters {
		if b.adapter == a {
			return b
		}
	}
	if len(s.adapters) < cap(s.adapters) {
		s.adapters = s.adapters[:len(s.adapters)+1]
	} else {
		s.adapters = append(s.adapters, nil)
	}
	p := &s.adapters[len(s.adapters)-1]
	if *p == nil {
		*p = &batchAdapter{}
	}
	(*p).adapter = a
	return *p
}

// lora makes room for adapters of targets first…last of this layer, and reports whether there are any.
func (s *step) lora(first, last lora.Target) bool {
	any := false
	for _, a := range s.adapters {
		for t := first; t <= last && t < noTarget; t++ {
			if a.layers[s.at][t] != nil {
				a.low[t].Resize(gguf.F32, len(s.tokens), a.rank)
				any = true
			}
		}
	}
	return any
}

// sameRun returns token i's adapter, and the end, up to most, of its run.
func (s *step) sameRun(i, most int) (end int, a *batchAdapter) {
	r := &s.runs[s.tokens[i].run]
	return min(most, r.first+r.n), r.adapter
}

// shrink computes A·x for tokens lo…hi.
func (s *step) shrink(member, lo, hi int) {
	w := &s.members[member]
	for lo < hi {
		i := lo
		end, a := s.sameRun(lo, hi)
		if lo = end; a == nil {
			continue
		}
		for t := s.site.first; t <= s.site.last; t++ {
			p := a.layers[s.at][t]
			if p == nil {
				continue
			}
			w.rows = resize(w.rows, end*a.rank)
			p.a.Mul(w.rows, a.rank, &s.input.floats, i, end, 0, a.rank, &w.kernel)
			a.low[t].Load(w.rows[i*a.rank:end*a.rank], i, end)
		}
	}
}

// grow adds Scale·B·(A·x) to the term's out, for its tokens whose adapter has this target.
func (s *step) grow(member int, target lora.Target, t term) {
	if target >= noTarget || len(s.adapters) == 0 {
		return
	}
	w, n := &s.members[member], t.hi-t.lo
	for i, end := t.t0, 0; i < t.t1; i = end {
		var a *batchAdapter
		if end, a = s.sameRun(i, t.t1); a == nil || a.layers[s.at][target] == nil {
			continue
		}
		b := part(&a.layers[s.at][target].b, t.lo, t.hi)
		w.grown = resize(w.grown, end*n)
		b.Mul(w.grown, n, &a.low[target], i, end, 0, n, &w.kernel)
		for j := i; j < end; j++ {
			kernel.Axpy(t.out[j*t.stride+t.lo-t.base:][:n], a.scale, w.grown[j*n:][:n])
		}
	}
}

// LoadAdapter implements infer.Inferencer.
func (r *Runner) LoadAdapter(id int32, a *lora.Adapter) error {
	packed, err := newAdapter(a, r.conf)
	if err != nil {
		return fmt.Errorf("load adapter %d: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.ErrClosed
	case id <= 0 || r.adapters[id] != nil:
		return fmt.Errorf("load adapter %s: id %d is in use or not above 0", a.Name, id)
	}
	r.adapters[id] = packed
	return nil
}

// UnloadAdapter implements infer.Inferencer.
func (r *Runner) UnloadAdapter(id int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.ErrClosed
	case r.adapters[id] == nil:
		return fmt.Errorf("unload adapter %d: %w", id, infer.ErrNoAdapter)
	}
	delete(r.adapters, id)
	if r.step != nil {
		r.step.forget()
	}
	return nil
}

// forget drops references to adapters of earlier parts.
func (s *step) forget() {
	clear(s.adapters[:cap(s.adapters)])
	clear(s.runs[:cap(s.runs)])
	s.adapters, s.runs = s.adapters[:0], s.runs[:0]
}
