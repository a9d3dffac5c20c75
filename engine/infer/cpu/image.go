package cpu

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

const keptImages = 8

type seen struct {
	sum     [sha256.Size]byte // of the pixels
	vectors []float32         // [N, Dim]
}

func openProjector(cfg Config) (*Runner, error) {
	return Open(cfg.Projector, Config{
		Threads: cfg.Threads, Sequences: 1, TileDir: cfg.TileDir, TileFrom: cfg.TileFrom, TileLimit: cfg.TileLimit, Log: cfg.Log, projects: true,
	})
}

// shows adds to a model's shape how it sees images.
func (r *Runner) shows(c *model.Config) error {
	if r.projector == nil {
		return nil
	}
	p := &r.projector.conf
	n := p.Image.Tokens()
	switch {
	case c.Arch != "gemma3":
		return fmt.Errorf("the projector gemma3 is for models of the architecture gemma3, and this one is %s: leave out --mmproj", c.Arch)
	case r.cfg.Shard.Of > 1:
		return fmt.Errorf("models that read images are not divided among processes: leave out --shards or --mmproj")
	case p.Vocab != c.Dim:
		return fmt.Errorf("the projector makes embeddings of %d values, the model has %d: take the projector that was made with it", p.Vocab, c.Dim)
	case n > maxStep || c.Window > 0 && n > c.Window:
		return fmt.Errorf("an image has %d tokens: want at most %d, and no more than the window of %d", n, maxStep, c.Window)
	}
	c.Image = p.Image
	return nil
}

// show gives tokens lo…hi of an Item, the part's last ones, the embeddings of its images. Such a token sees its whole
// image.
func (r *Runner) show(ctx context.Context, it *infer.Item, lo, hi int) error {
	tokens := r.step.tokens[len(r.step.tokens)-(hi-lo):]
	for i := range it.Images {
		m := &it.Images[i]
		from, to := max(m.At, it.Pos+lo), min(m.At+m.N, it.Pos+hi)
		if from >= to {
			continue
		}
		vectors, err := r.vectors(ctx, m.Pixels)
		if err != nil {
			return err
		}
		for pos := from; pos < to; pos++ {
			t := &tokens[pos-it.Pos-lo]
			t.image, t.to = vectors[(pos-m.At)*r.conf.Dim:][:r.conf.Dim], m.At+m.N
		}
	}
	return nil
}

func (r *Runner) vectors(ctx context.Context, pixels []byte) ([]float32, error) {
	x := seen{sum: sha256.Sum256(pixels)}
	if i := slices.IndexFunc(r.seen, func(o seen) bool { return o.sum == x.sum }); i >= 0 {
		x.vectors = r.seen[i].vectors
		r.seen = slices.Delete(r.seen, i, i+1)
	} else {
		var err error
		if x.vectors, err = r.projector.project(ctx, pixels); err != nil {
			return nil, fmt.Errorf("make embeddings of an image: %w", err)
		}
	}
	r.seen = slices.Insert(r.seen, 0, x)
	r.seen = r.seen[:min(len(r.seen), keptImages)]
	return x.vectors, nil
}

// project returns the embeddings of an image, [Tokens, Vocab].
func (r *Runner) project(ctx context.Context, pixels []byte) ([]float32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.step = newStep(r) }() // its memory is as large as the image
	s, c, w := r.step, &r.conf, r.weights
	n := c.Context
	view := run{n: n, blocks: make([]int32, (n+kernel.Block-1)/kernel.Block)}
	for i := range view.blocks {
		view.blocks[i] = int32(i)
		r.cache.touch(int32(i))
	}
	s.begin()
	s.runs = append(s.runs, view)
	for i := range n {
		s.tokens = append(s.tokens, token{pos: i, to: n, row: i})
	}
	s.resize(n)
	s.raw(patches(c.Image, pixels), w.embed.Cols, noTarget, w.embed)
	s.mul(term{m: w.embed, hi: c.Dim, out: s.x, stride: c.Dim, target: noTarget, t1: n})
	kernel.Add(s.x, w.positions)
	s.site = site{}
	ones := slices.Repeat([]float32{1}, max(c.FFN, c.Dim))
	for i := range w.layers {
		s.at = i
		s.look(&w.layers[i], ones)
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	pooled := s.pool(ones)
	tokens := c.Image.Tokens()
	s.tokens = s.tokens[:tokens]
	s.raw(pooled, c.Dim, noTarget, w.output)
	out := make([]float32, tokens*c.Vocab)
	s.mul(term{m: w.output, hi: c.Vocab, out: out, stride: c.Vocab, target: noTarget, t1: tokens})
	return out, s.check(ctx)
}

// patches returns pixels by patch, [patches, 3·Patch·Patch]: each colour apart, and normed by c.Mean and c.Std.
func patches(c model.Image, pixels []byte) []float32 {
	out := make([]float32, 0, len(pixels))
	for top := 0; top < c.Size; top += c.Patch {
		for left := 0; left < c.Size; left += c.Patch {
			for colour := range 3 {
				for y := top; y < top+c.Patch; y++ {
					for x := left; x < left+c.Patch; x++ {
						v := float32(pixels[(y*c.Size+x)*3+colour]) / 255
						out = append(out, (v-c.Mean[colour])/c.Std[colour])
					}
				}
			}
		}
	}
	return out
}

// look computes a layer of the projector. The heads are spread to HeadDim for the attention.
func (s *step) look(l *layer, ones []float32) {
	c, n := &s.conf, len(s.tokens)
	head, wide := c.Dim/c.Heads, c.Heads*c.HeadDim
	linear := func(m *matrix, out []float32, stride int, bias []float32) term {
		return term{m: m, hi: m.Rows, out: out, stride: stride, bias: bias, target: noTarget, t1: n}
	}
	s.normed(l.AttnNorm, l.AttnNormBias, noTarget, noTarget, l.qkv...)
	s.mul(linear(l.q, s.q, wide, l.QBias), linear(l.k, s.k, wide, l.KBias), linear(l.v, s.v, wide, l.VBias))
	s.parallel(n, n*wide*8, func(_, i int) {
		for _, v := range [][]float32{s.q, s.k, s.v} {
			for j := c.Heads - 1; j >= 0; j-- {
				to := v[i*wide+j*c.HeadDim:][:c.HeadDim]
				copy(to, v[i*wide+j*head:][:head])
				clear(to[head:])
			}
		}
		for j := range c.Heads {
			at, p := i*wide+j*c.HeadDim, s.cache.pages(0, j, s.runs[0].blocks)
			p.StoreKey(i, s.k[at:][:c.HeadDim])
			p.StoreValue(i, s.v[at:][:c.HeadDim])
		}
	})
	s.attention(l)
	s.parallel(n, n*wide*2, func(_, i int) {
		for j := range c.Heads {
			copy(s.q[i*c.Dim+j*head:][:head], s.att[i*wide+j*c.HeadDim:])
		}
	})
	s.raw(s.q, c.Dim, noTarget, l.o)
	s.mul(linear(l.o, s.out, c.Dim, l.OBias))
	s.site = site{add: s.out}
	s.normed(l.FFNNorm, l.FFNNormBias, noTarget, noTarget, l.up)
	s.mul(linear(l.up, s.gate, c.FFN, l.UpBias))
	s.parallel(n, n*c.FFN*8, func(_, i int) { kernel.GELUMul(s.gate[i*c.FFN:][:c.FFN], ones[:c.FFN]) })
	s.raw(s.gate, c.FFN, noTarget, l.down)
	s.mul(linear(l.down, s.out, c.Dim, l.DownBias))
	s.site = site{add: s.out}
}

// pool returns the normed means of squares of patches, [Tokens, Dim].
func (s *step) pool(ones []float32) []float32 {
	c, w := &s.conf, s.weights
	side, by := c.Image.Size/c.Image.Patch, c.Image.Merge
	out := make([]float32, c.Image.Tokens()*c.Dim)
	s.parallel(c.Image.Tokens(), len(s.tokens)*c.Dim*8, func(member, j int) {
		sum := out[j*c.Dim:][:c.Dim]
		first := j/(side/by)*by*side + j%(side/by)*by
		for i := range by * by {
			at := first + i/by*side + i%by
			kernel.Add(sum, s.norm(s.addOut(member, at), at, w.outputNorm, w.outputNormBias))
		}
		kernel.Scale(sum, 1/float32(by*by))
		kernel.RMSNorm(sum, sum, ones[:c.Dim], c.RMSEps)
	})
	return out
}
