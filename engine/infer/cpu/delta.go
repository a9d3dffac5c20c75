package cpu

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// states are sequences', by Item.State. Each takes memory from its first use until the model sleeps.
type states struct {
	conf   *model.Config
	layers int // with a delta net
	all    []state
}

// state has, for each layer with a delta net, the last inputs of the convolution, [DeltaConv-1, DeltaChannels], the
// oldest first, and the heads' matrices, [DeltaHeads, DeltaDim, DeltaDim].
type state struct {
	pos    int // the next position; -1 while a step changes it, and after one that failed
	memory []byte
	values []float32
}

func newStates(c *model.Config) *states {
	s := &states{conf: c}
	for i := range c.Layers {
		if c.Delta(i) {
			s.layers++
		}
	}
	return s
}

func (s *states) perLayer() (past, heads int) {
	c := s.conf
	return (c.DeltaConv - 1) * c.DeltaChannels(), c.DeltaHeads * c.DeltaDim * c.DeltaDim
}

func (s *states) of(values []float32, layer int) (past, heads []float32) {
	n, m := s.perLayer()
	at := (layer - (layer+1)/s.conf.GlobalEvery) * (n + m)
	return values[at:][:n], values[at+n:][:m]
}

// check returns an error if an item does not go on where its state ends, or two have the same.
func (s *states) check(items []infer.Item) error {
	if s.layers == 0 {
		return nil
	}
	for i := range items {
		it, have := &items[i], -1
		if n := int(it.State); n >= 0 && n < len(s.all) {
			have = s.all[n].pos
		}
		switch {
		case it.State < 0 || slices.ContainsFunc(items[:i], func(o infer.Item) bool { return o.State == it.State }):
			return fmt.Errorf("batch item %d: state %d is negative, or another item's", i, it.State)
		case it.Pos > 0 && it.Pos != have:
			return fmt.Errorf("batch item %d: position %d of a sequence whose state is at %d: begin it again", i, it.Pos, have)
		}
	}
	return nil
}

// Until end, the batch's states are of no position.
func (s *states) begin(items []infer.Item) error {
	for i := range items {
		if s.layers == 0 {
			return nil
		}
		for int(items[i].State) >= len(s.all) {
			s.all = append(s.all, state{})
		}
		past, heads := s.perLayer()
		x := &s.all[items[i].State]
		if x.memory == nil {
			mem, err := mapAnonymous(4 * s.layers * (past + heads))
			if err != nil {
				return fmt.Errorf("take memory for the state of a sequence (let fewer run at once): %w", err)
			}
			x.memory, x.values = mem, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/4)
		}
		if x.pos = -1; items[i].Pos == 0 {
			clear(x.values)
		}
	}
	return nil
}

func (s *states) end(items []infer.Item) {
	for i := range items {
		if s.layers > 0 {
			s.all[items[i].State].pos = items[i].Pos + len(items[i].Tokens)
		}
	}
}

func (s *states) values(it *infer.Item) []float32 {
	if s.layers == 0 {
		return nil
	}
	return s.all[it.State].values
}

func (s *states) bytes() (n int64) {
	for i := range s.all {
		n += int64(len(s.all[i].memory))
	}
	return n
}

func (s *states) close() (err error) {
	for i := range s.all {
		if mem := s.all[i].memory; mem != nil {
			err = errors.Join(err, unmap(mem))
		}
	}
	s.all = nil
	return err
}

// deltaNet computes a gated delta net up to the matrix O, to z.
func (s *step) deltaNet(l *layer) {
	c, n := &s.conf, len(s.tokens)
	channels, values := c.DeltaChannels(), c.DeltaHeads*c.DeltaDim
	s.normed(l.AttnNorm, nil, noTarget, noTarget, l.qkv...)
	s.rates = resize(s.rates, n*2*c.DeltaHeads)
	s.mul(
		term{m: l.q, hi: channels, out: s.mixed, stride: channels, target: noTarget, t1: n},
		term{m: l.deltaGate, hi: values, out: s.z, stride: values, target: noTarget, t1: n},
		term{m: l.alpha, hi: c.DeltaHeads, out: s.rates, stride: 2 * c.DeltaHeads, target: noTarget, t1: n},
		term{m: l.beta, hi: c.DeltaHeads, out: s.rates[c.DeltaHeads:], stride: 2 * c.DeltaHeads, target: noTarget, t1: n},
	)
	s.parallel(len(s.runs)*c.DeltaKeys, n*values*(4*c.DeltaDim+16), s.stages.delta)
}

// deltaChunk computes one run's heads that share a key, token after token, so the bits do not depend on cuts.
func (s *step) deltaChunk(member, chunk int) {
	c, l, w := &s.conf, &s.weights.layers[s.at], &s.members[member]
	r, h := &s.runs[chunk/c.DeltaKeys], chunk%c.DeltaKeys
	d, keys, channels, values := c.DeltaDim, c.DeltaKeys, c.DeltaChannels(), c.DeltaHeads*c.DeltaDim
	past, heads := s.states.of(r.state, s.at)
	for at := h; at < 2*keys+c.DeltaHeads; at += keys {
		s.convolve(w, r, past, at*d)
	}
	w.y = resize(w.y, max(d, c.Dim))
	out := w.y[:d]
	for i := r.first; i < r.first+r.n; i++ {
		x, rates := s.mixed[i*channels:][:channels], s.rates[i*2*c.DeltaHeads:]
		q, k := x[h*d:][:d], x[(keys+h)*d:][:d]
		kernel.RMSNorm(q, q, l.unitQ, c.RMSEps/float32(d))
		kernel.RMSNorm(k, k, l.unitK, c.RMSEps/float32(d))
		for v := h; v < c.DeltaHeads; v += keys {
			decay := kernel.Exp(float32(l.Decay[v] * kernel.Softplus(rates[v]+l.DecayBias[v])))
			kernel.DeltaRule(heads[v*d*d:][:d*d], q, k, x[(2*keys+v)*d:][:d], decay, kernel.Sigmoid(rates[c.DeltaHeads+v]), out)
			kernel.RMSNorm(out, out, l.DeltaNorm, c.RMSEps)
			kernel.SiLUMul(s.z[i*values+v*d:][:d], out)
		}
	}
}

// convolve replaces DeltaDim channels, from at on, by their convolution, and keeps the last inputs.
func (s *step) convolve(w *workspace, r *run, past []float32, at int) {
	c, l := &s.conf, &s.weights.layers[s.at]
	d, channels, before := c.DeltaDim, c.DeltaChannels(), c.DeltaConv-1
	input := func(i int) []float32 { // from the first of past on
		if i < before {
			return past[i*channels+at:][:d]
		}
		return s.mixed[(r.first+i-before)*channels+at:][:d]
	}
	w.rows = resize(w.rows, before*d)
	for i := range before {
		copy(w.rows[i*d:][:d], input(r.n+i))
	}
	for i := r.n - 1; i >= 0; i-- { // in place: the tokens before do not need a token's input
		w.inputs = w.inputs[:0]
		for j := range c.DeltaConv {
			w.inputs = append(w.inputs, input(i+j))
		}
		out := input(i + before)
		kernel.Convolve(out, l.Conv[at*c.DeltaConv:], w.inputs)
		kernel.SiLUMul(out, l.ones)
	}
	for i := range before {
		copy(past[i*channels+at:], w.rows[i*d:][:d])
	}
}

// ungate divides a token's rows of Q into queries and gates.
func (s *step) ungate(i, d int) {
	for h := i * s.conf.Heads; h < (i+1)*s.conf.Heads; h++ {
		copy(s.q[h*d:][:d], s.mixed[2*h*d:])
		copy(s.z[h*d:][:d], s.mixed[(2*h+1)*d:])
	}
}

func (s *step) gateChunk(_, i int) {
	n := s.conf.Heads * s.conf.HeadDim
	kernel.SigmoidMul(s.att[i*n:][:n], s.z[i*n:])
}
