package cpu

import (
	"context"
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// maxStep is how many tokens are computed at once. It bounds the working memory.
const maxStep = 256

// token is one position of one sequence.
type token struct {
	id     int32
	pos    int
	blocks []int32
}

// step is the working memory of one part of a batch. T is the number of tokens, q is
// Heads·HeadDim, kv is KVHeads·HeadDim.
type step struct {
	conf   model.Config
	model  *model.Model
	cache  *cache
	team   *team
	tokens []token
	asked  []int     // tokens whose logits go out
	pooled []int     // tokens whose hidden states go out
	logits []float32 // [all that were asked for, Vocab]
	hidden []float32 // [all that were asked for, Dim]

	sent, sentHidden int // rows of logits and hidden that earlier parts filled

	x        []float32 // [T, Dim] residual stream
	y        []float32 // [T, max(Dim, q)] input of the next product
	q        []float32 // [T, q]
	k, v     []float32 // [T, kv]
	gate, up []float32 // [T, FFN]
	tmp      []float32 // [T, Dim] product before it is added to x
	cos, sin []float32 // [T, RopeDim/2]

	input   kernel.Q8Input
	plan    plan        // what mulChunk computes
	layer   int         // what rotate and attend work on
	weights []float32   // what norm works with
	members []workspace // one per goroutine
	stages  stages
}

// workspace is one goroutine's own memory.
type workspace struct {
	scores []float32 // attention weights, one per position
	wide   []float32 // rows of F16 or BF16, decoded
}

// stages are the team's functions, bound once so that a step does not allocate closures.
type stages struct {
	embed, norm, load, mul, rotate, attend func(member, chunk int)
}

func newStep(r *Runner) *step {
	s := &step{conf: r.conf, model: r.model, cache: r.cache, team: &r.team, members: make([]workspace, r.cfg.Threads)}
	s.stages = stages{embed: s.embedChunk, norm: s.normChunk, load: s.loadChunk, mul: s.mulChunk, rotate: s.rotateChunk, attend: s.attendChunk}
	return s
}

// bytes is the working memory in use.
func (s *step) bytes() int64 {
	n := s.input.Bytes()
	for _, f := range [][]float32{s.x, s.y, s.q, s.k, s.v, s.gate, s.up, s.tmp, s.cos, s.sin, s.logits, s.hidden} {
		n += int64(cap(f)) * 4
	}
	for _, w := range s.members {
		n += int64(cap(w.scores)+cap(w.wide)) * 4
	}
	return n
}

// begin starts a part.
func (s *step) begin() {
	s.tokens, s.asked, s.pooled = s.tokens[:0], s.asked[:0], s.pooled[:0]
}

// add appends token j of an Item.
func (s *step) add(it *infer.Item, j int) {
	t := token{id: it.Tokens[j], pos: it.Pos + j, blocks: it.Blocks}
	switch {
	case it.Want == infer.All || it.Want == infer.Last && j == len(it.Tokens)-1:
		s.asked = append(s.asked, len(s.tokens))
	case it.Want == infer.Hidden:
		s.pooled = append(s.pooled, len(s.tokens))
	}
	s.cache.touch(t.blocks[t.pos/s.cache.size])
	s.tokens = append(s.tokens, t)
}

// compute runs the part. A cancelled context ends it between two layers.
func (s *step) compute(ctx context.Context) error {
	c, n := &s.conf, len(s.tokens)
	if n == 0 {
		return nil
	}
	qw, kvw := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	s.x = resize(s.x, n*c.Dim)
	s.y = resize(s.y, n*max(c.Dim, qw))
	s.q = resize(s.q, n*qw)
	s.k = resize(s.k, n*kvw)
	s.v = resize(s.v, n*kvw)
	s.gate = resize(s.gate, n*c.FFN)
	s.up = resize(s.up, n*c.FFN)
	s.tmp = resize(s.tmp, n*c.Dim)
	s.cos = resize(s.cos, n*c.RopeDim/2)
	s.sin = resize(s.sin, n*c.RopeDim/2)
	s.parallel(n, n*c.Dim*4, s.stages.embed)
	for i := range s.model.Layers {
		if ctx.Err() != nil {
			return fmt.Errorf("forward pass: %w", context.Cause(ctx))
		}
		s.layer = i
		s.runLayer(&s.model.Layers[i])
	}
	s.output()
	return nil
}

func (s *step) runLayer(l *model.Layer) {
	c, n := &s.conf, len(s.tokens)
	qw, kvw := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	s.norm(l.AttnNorm)
	s.mul(n, s.y, product{
		{m: &l.Q, out: s.q, bias: l.QBias},
		{m: &l.K, out: s.k, bias: l.KBias},
		{m: &l.V, out: s.v, bias: l.VBias},
	})
	s.parallel(n, n*(qw+kvw)*4, s.stages.rotate)
	s.parallel(n*c.Heads, s.attentionCost(), s.stages.attend)
	s.mul(n, s.y, product{{m: &l.O, out: s.tmp, bias: l.OBias, add: s.x}})
	s.norm(l.FFNNorm)
	s.mul(n, s.y, product{{m: &l.Gate, out: s.gate, up: &l.Up, upOut: s.up}})
	s.mul(n, s.gate, product{{m: &l.Down, out: s.tmp, add: s.x}})
}

// output computes the logits and hidden states that were asked for.
func (s *step) output() {
	c := &s.conf
	for _, i := range s.pooled {
		kernel.RMSNorm(s.hidden[s.sentHidden*c.Dim:][:c.Dim], s.x[i*c.Dim:][:c.Dim], s.model.OutputNorm, c.RMSEps)
		s.sentHidden++
	}
	if len(s.asked) == 0 {
		return
	}
	for j, i := range s.asked {
		kernel.RMSNorm(s.y[j*c.Dim:][:c.Dim], s.x[i*c.Dim:][:c.Dim], s.model.OutputNorm, c.RMSEps)
	}
	s.mul(len(s.asked), s.y, product{{m: &s.model.Output, out: s.logits[s.sent*c.Vocab:]}})
	s.sent += len(s.asked)
}

// norm writes the normed residual stream to y, [T, Dim].
func (s *step) norm(w []float32) {
	s.weights = w
	s.parallel(len(s.tokens), len(s.tokens)*s.conf.Dim, s.stages.norm)
}

func (s *step) normChunk(_, i int) {
	d := s.conf.Dim
	kernel.RMSNorm(s.y[i*d:][:d], s.x[i*d:][:d], s.weights, s.conf.RMSEps)
}

// embedChunk decodes one token's embedding and the angles of its position.
func (s *step) embedChunk(_, i int) {
	c, t := &s.conf, &s.tokens[i]
	widen(s.x[i*c.Dim:][:c.Dim], &s.model.Embed, int(t.id))
	h := c.RopeDim / 2
	kernel.RopeAngles(s.cos[i*h:][:h], s.sin[i*h:][:h], t.pos, c.RopeBase, c.RopeScale, s.model.RopeFactors)
}

// widen decodes rows of a matrix from row on; len(dst) says how many.
func widen(dst []float32, m *model.Matrix, row int) {
	size := len(m.Data) / m.Rows
	src := m.Data[row*size:]
	switch m.Type {
	case gguf.F32:
		copy(dst, m.F32[row*m.Cols:])
	case gguf.F16:
		kernel.WidenF16(dst, src)
	case gguf.BF16:
		kernel.WidenBF16(dst, src)
	case gguf.Q8_0:
		kernel.WidenQ8(dst, src)
	}
}
