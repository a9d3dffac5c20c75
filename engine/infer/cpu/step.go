package cpu

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// maxStep is the most tokens computed at once. It bounds the working memory.
const maxStep = 256

type token struct {
	id   int32
	pos  int
	to   int // it sees positions before this one
	run  int // index of its run in the part
	row  int // of inputs
	kind int // row of the embeddings of types

	image []float32 // [Dim] the embedding, of an image's token; nil: the token's own
}

type run struct {
	first, n int // tokens
	blocks   []int32
	state    []float32     // may be nil
	adapter  *batchAdapter // may be nil
}

// step is the working memory of one part of a batch. T is tokens, q Heads·HeadDim, kv KVHeads·HeadDim. Of q, k and v
// only the columns of the rank's own heads are computed.
type step struct {
	conf    model.Config
	weights *weights
	cache   *cache
	states  *states
	team    *team
	share   share
	ropes   *ropes
	ex      *exchange

	tokens   []token
	runs     []run
	asked    []int           // tokens whose logits are wanted
	pooled   []int           // tokens whose hidden states are wanted
	adapters []*batchAdapter // each once
	logits   []float32       // [all that are wanted, Vocab]
	hidden   []float32       // [all that are wanted, Dim]

	sent, sentHidden int // rows of logits and hidden that earlier parts filled

	x       []float32 // [T, Dim] residual stream
	q, k, v []float32 // [T, q], [T, kv]
	att     []float32 // [T, q], of all ranks
	out     []float32 // [S, Dim], of all ranks; S is T, or T·ExpertsUsed
	inputs  []float32 // [T, Layers·LayerInput] the layers' inputs
	mixed   []float32 // [T, 2·q or DeltaChannels] queries with gates, or a delta net's queries, keys and values
	z       []float32 // [T, q or DeltaHeads·DeltaDim] gates, and the delta net's results
	rates   []float32 // [T, 2·DeltaHeads] of decay and of change
	gate    []float32 // [T, FFN or SharedFFN] or [S, ExpertFFN], of all ranks

	input   input
	site    site
	plan    plan
	at      int // the current layer
	attends attendPlan
	mix     mixture
	members []workspace
	stages  stages
}

// workspace is one goroutine's memory.
type workspace struct {
	kernel  kernel.Scratch
	attend  kernel.Attention
	queries []kernel.Query
	parts   []float32
	y       []float32 // [Dim]
	grown   []float32 // an adapter's share of some rows
	rows    []float32 // second factor of a gated product; A·x of an adapter; inputs of a convolution
	inputs  [][]float32
}

// stages are bound once, so that a step does not allocate closures.
type stages struct {
	embed, inputs, settle, input, prepare, mul, rotate, attend, parts, merge, gate, delta, route, combine func(member, chunk int)
}

func newStep(r *Runner) *step {
	s := &step{
		conf: r.conf, weights: r.weights, cache: r.cache, states: r.states, team: &r.team, share: r.share, ex: r.exchange,
		ropes: newRopes(r.model), members: make([]workspace, r.cfg.Threads),
	}
	for i := range s.members {
		s.members[i].attend = kernel.Attention{Scale: s.conf.AttnScale, Softcap: s.conf.AttnSoftcap}
	}
	s.stages = stages{
		embed: s.embedChunk, inputs: s.inputsChunk, settle: s.settleChunk, input: s.inputChunk, prepare: s.prepareChunk, mul: s.mulChunk, rotate: s.rotateChunk,
		attend: s.attendChunk, parts: s.partsChunk, merge: s.mergeChunk, gate: s.gateChunk, delta: s.deltaChunk, route: s.routeChunk, combine: s.combineChunk,
	}
	return s
}

func (s *step) bytes() int64 {
	n := s.input.bytes() + s.ropes.bytes() + int64(cap(s.attends.parts))*4
	for _, f := range [][]float32{s.x, s.q, s.k, s.v, s.att, s.out, s.gate, s.inputs, s.mixed, s.z, s.rates, s.logits, s.hidden} {
		n += int64(cap(f)) * 4
	}
	for i := range s.members {
		n += int64(cap(s.members[i].rows)+cap(s.members[i].parts)) * 4
	}
	return n
}

func (s *step) begin() {
	s.tokens, s.runs, s.asked, s.pooled, s.adapters = s.tokens[:0], s.runs[:0], s.asked[:0], s.pooled[:0], s.adapters[:0]
}

func (s *step) add(it *infer.Item, lo, hi int, a *adapter) {
	s.runs = append(s.runs, run{first: len(s.tokens), n: hi - lo, blocks: it.Blocks, state: s.states.values(it), adapter: s.adapter(a)})
	kind := 0
	for j := lo; j < hi; j++ {
		t := token{id: it.Tokens[j], pos: it.Pos + j, to: it.Pos + j + 1, run: len(s.runs) - 1, row: len(s.tokens), kind: kind}
		if s.conf.Encoder {
			t.to = len(it.Tokens)
		}
		if s.conf.Pair != 0 && t.id == s.conf.Pair {
			kind = 1
		}
		s.ropes.page(t.pos)
		switch {
		case it.Want == infer.All || it.Want == infer.Last && j == len(it.Tokens)-1:
			s.asked = append(s.asked, len(s.tokens))
		case it.Want == infer.Hidden || it.Want == infer.Rank && j == 0:
			s.pooled = append(s.pooled, len(s.tokens))
		}
		s.cache.touch(it.Blocks[t.pos/kernel.Block])
		s.tokens = append(s.tokens, t)
	}
}

// A cancelled context ends compute between two layers; an unreadable page of the weights after the layer.
func (s *step) compute(ctx context.Context) error {
	n := len(s.tokens)
	if n == 0 {
		return nil
	}
	s.resize(n)
	s.parallel(n, n*s.conf.Dim*4, s.stages.embed)
	if s.site = (site{}); s.conf.LayerInput > 0 {
		s.layerInputs()
	}
	for i := range s.weights.layers {
		s.at = i
		if err := s.runLayer(&s.weights.layers[i]); err != nil {
			return err
		}
		if err := s.check(ctx); err != nil {
			return err
		}
	}
	return s.output()
}

// check ends the part in every rank after the same layer.
func (s *step) check(ctx context.Context) error {
	err := s.team.err()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err = s.ex.agree(err); err != nil {
		return fmt.Errorf("forward pass: %w", err)
	}
	return nil
}

func (s *step) resize(n int) {
	c := &s.conf
	qw, kvw := heads(c)
	out, gate := widths(c)
	s.x = resize(s.x, n*c.Dim)
	s.q = resize(s.q, n*qw)
	s.k = resize(s.k, n*kvw)
	s.v = resize(s.v, n*kvw)
	s.att = s.ex.resize(&s.ex.att, s.att, n*qw)
	s.out = s.ex.resize(&s.ex.out, s.out, n*out)
	s.gate = s.ex.resize(&s.ex.gate, s.gate, n*gate)
	if c.Stateful() {
		s.mixed = resize(s.mixed, n*max(2*qw, c.DeltaChannels()))
		s.z = resize(s.z, n*max(qw, c.DeltaHeads*c.DeltaDim))
	}
}

// heads returns the most values of queries and of keys of a token in any layer.
func heads(c *model.Config) (q, kv int) {
	return c.Heads * max(c.HeadDim, c.LocalHeadDim), max(c.KVHeads*c.HeadDim, c.LocalKVHeads*c.LocalHeadDim)
}

// widths returns the most values of out and of gate of a token in any layer.
func widths(c *model.Config) (out, gate int) {
	return c.Dim * max(c.ExpertsUsed, 1), max(c.FFN, c.OwnFFN, c.SharedFFN, c.ExpertsUsed*c.ExpertFFN, c.LayerInput)
}

// runLayer adds to x what the previous layer left in s.site; afterwards s.site holds what this one left.
func (s *step) runLayer(l *layer) error {
	c, sh := &s.conf, &s.share
	var from []float32 // the input of O
	if l.deltaGate != nil {
		s.deltaNet(l)
		from = s.z
	} else if from = s.attend(l); len(s.tokens) == 0 {
		return nil
	}
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.raw(from, l.o.Cols, lora.O, l.o)
	s.mul(term{m: l.o, lo: sh.dim.lo, hi: sh.dim.hi, out: s.out, stride: c.Dim, bias: l.OBias, target: lora.O, t1: len(s.tokens)})
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.site = site{add: s.out, post: l.AttnPostNorm}
	do := s.feedForward
	if l.router != nil {
		do = s.experts
	}
	err := do(l)
	if l.inputGate != nil && err == nil {
		s.layerInput(l)
	}
	s.site.scale = l.scale
	return err
}

// attend computes attention up to the matrix O. In the last layer only tokens with a wanted output remain.
func (s *step) attend(l *layer) []float32 {
	c, n, sh := &s.conf, len(s.tokens), &s.share
	qw, kvw := c.Heads*l.headDim, l.kvHeads*l.headDim
	q, kv := sh.q, sh.kv
	if sh.of == 1 {
		q, kv = rows{0, qw}, rows{0, kvw}
	}
	s.normed(l.AttnNorm, l.AttnNormBias, lora.Q, lora.V, l.qkv...)
	query := term{m: l.q, lo: q.lo, hi: q.hi, out: s.q, stride: qw, bias: l.QBias, target: lora.Q, t1: n}
	if l.gated {
		query.hi, query.out, query.stride = 2*qw, s.mixed, 2*qw
	}
	s.mul([]term{
		query,
		{m: l.k, lo: kv.lo, hi: kv.hi, out: s.k, stride: kvw, bias: l.KBias, target: lora.K, t1: n},
		{m: l.v, lo: kv.lo, hi: kv.hi, out: s.v, stride: kvw, bias: l.VBias, target: lora.V, t1: n},
	}[:len(l.qkv)]...)
	s.parallel(n, n*(qw+2*kvw)*4, s.stages.rotate)
	if s.at == len(s.weights.layers)-1 {
		if n = s.prune(); n == 0 {
			return nil
		}
	}
	s.attention(l)
	if l.gated {
		s.parallel(n, n*qw*16, s.stages.gate)
	}
	return s.att
}

func (s *step) layerInputs() {
	n, width := len(s.tokens), s.conf.Layers*s.conf.LayerInput
	s.inputs = resize(s.inputs, n*width)
	s.raw(s.x, s.conf.Dim, noTarget, s.weights.inputProj)
	s.mul(term{m: s.weights.inputProj, hi: width, out: s.inputs, stride: width, target: noTarget, t1: n})
	s.parallel(n, n*width*4, s.stages.inputs)
}

func (s *step) inputsChunk(member, i int) {
	c, w := &s.conf, &s.members[member]
	width := c.Layers * c.LayerInput
	w.rows = resize(w.rows, width)
	s.weights.inputEmbed.Row(w.rows, int(s.tokens[i].id))
	kernel.Scale(w.rows, float32(math.Sqrt(float64(c.LayerInput))))
	x := s.inputs[i*width:][:width]
	kernel.Scale(x, float32(1/math.Sqrt(float64(c.Dim))))
	for at := 0; at < width; at += c.LayerInput {
		kernel.RMSNorm(x[at:][:c.LayerInput], x[at:][:c.LayerInput], s.weights.inputNorm, c.RMSEps)
	}
	kernel.Add(x, w.rows)
	kernel.Scale(x, math.Sqrt2/2)
}

func (s *step) layerInput(l *layer) {
	c, n := &s.conf, len(s.tokens)
	s.parallel(n, n*c.Dim*4, s.stages.settle)
	s.raw(s.x, c.Dim, noTarget, l.inputGate)
	s.mul(term{m: l.inputGate, hi: c.LayerInput, out: s.gate, stride: c.LayerInput, target: noTarget, t1: n})
	s.parallel(n, n*c.LayerInput*8, s.stages.input)
	s.raw(s.gate, c.LayerInput, noTarget, l.inputDown)
	s.mul(term{m: l.inputDown, hi: c.Dim, out: s.out, stride: c.Dim, target: noTarget, t1: n})
	s.site = site{add: s.out, post: l.InputNorm}
}

func (s *step) settleChunk(member, i int) { s.addOut(member, i) }

func (s *step) inputChunk(_, i int) {
	n := s.conf.LayerInput
	kernel.GELUMul(s.gate[i*n:][:n], s.inputs[(s.tokens[i].row*s.conf.Layers+s.at)*n:][:n])
}

// prune drops tokens without wanted output: once the last layer's keys and values are stored, they are not needed.
func (s *step) prune() int {
	c, qw := &s.conf, s.conf.Heads*s.weights.layers[s.at].headDim
	asked, pooled, n := s.asked, s.pooled, 0
	for r := range s.runs {
		run := &s.runs[r]
		lo, hi := run.first, run.first+run.n
		run.first = n
		for i := lo; i < hi; i++ {
			switch {
			case len(asked) > 0 && asked[0] == i:
				asked[0], asked = n, asked[1:]
			case len(pooled) > 0 && pooled[0] == i:
				pooled[0], pooled = n, pooled[1:]
			default:
				continue
			}
			if n < i {
				s.tokens[n] = s.tokens[i]
				copy(s.x[n*c.Dim:][:c.Dim], s.x[i*c.Dim:])
				copy(s.q[n*qw:][:qw], s.q[i*qw:])
				if s.z != nil {
					copy(s.z[n*qw:][:qw], s.z[i*qw:])
				}
			}
			n++
		}
		run.n = n - run.first
	}
	s.tokens = s.tokens[:n]
	return n
}

func (s *step) feedForward(l *layer) error {
	s.normed(l.FFNNorm, l.FFNNormBias, lora.Gate, lora.Up, cmp.Or(l.gate, l.up), l.up)
	err := s.dense(l, l.up.Rows, lora.Gate, lora.Down)
	s.site = site{add: s.out, post: l.FFNPostNorm}
	return err // compute's check is where ranks wait for out
}

// dense computes out = Down·(act(Gate·y)·(Up·y)), without Gate Down·gelu(Up·y), of the input y.
func (s *step) dense(l *layer, width int, gate, down lora.Target) error {
	n, dim, part := len(s.tokens), s.share.dim, s.share.even(width, kernel.Tile)
	t := term{m: l.gate, up: l.up, lo: part.lo, hi: part.hi, out: s.gate, stride: width, target: gate, t1: n}
	if l.gate == nil {
		t.m, t.up, t.bias, t.gelu = l.up, nil, l.UpBias, true
	}
	s.mul(t)
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.raw(s.gate, width, down, l.down)
	s.mul(term{m: l.down, lo: dim.lo, hi: dim.hi, out: s.out, stride: s.conf.Dim, bias: l.DownBias, target: down, t1: n})
	return nil
}

func (s *step) output() error {
	c := &s.conf
	for _, i := range s.pooled {
		y := s.norm(s.addOut(0, i), i, s.weights.outputNorm, s.weights.outputNormBias)
		if c.Ranks {
			s.hidden[s.sentHidden] = s.weights.rank(y)
		} else {
			copy(s.hidden[s.sentHidden*c.Dim:], y)
		}
		s.sentHidden++
	}
	n := len(s.asked)
	if n > 0 {
		s.site.norm, s.site.tokens, s.site.first = s.weights.outputNorm, s.asked, noTarget
		s.input.resize(n, c.Dim, false, s.weights.output)
		s.parallel(groups(n), n*c.Dim*16, s.stages.prepare)
		out := s.logits[s.sent*c.Vocab:]
		s.mul(term{m: s.weights.output, lo: s.share.vocab.lo, hi: s.share.vocab.hi, out: out, stride: c.Vocab, target: noTarget, t1: n})
		s.sent += n
		if c.LogitSoftcap > 0 {
			for j := range n {
				kernel.Softcap(out[j*c.Vocab:][s.share.vocab.lo:s.share.vocab.hi], c.LogitSoftcap)
			}
		}
	}
	return s.check(background)
}

func (s *step) embedChunk(_, i int) {
	c := &s.conf
	x := s.x[i*c.Dim:][:c.Dim]
	t := &s.tokens[i]
	if t.image != nil { // as it is, without EmbedScale
		copy(x, t.image)
		return
	}
	s.weights.embed.Row(x, int(t.id))
	for _, e := range []struct {
		rows []float32
		row  int
	}{{s.weights.positions, t.pos}, {s.weights.types, t.kind}} {
		if len(e.rows) > 0 {
			kernel.Add(x, e.rows[e.row*c.Dim:][:c.Dim])
		}
	}
	if c.EmbedScale != 1 {
		kernel.Scale(x, c.EmbedScale)
	}
}

// ropes are the angles of positions, computed by page when a position is first used.
type ropes struct {
	model *model.Model
	half  [2]int // of each kind, RopeDim/2
	pages [][]float32
}

const ropePage = 64

func newRopes(m *model.Model) *ropes {
	c := &m.Config
	return &ropes{model: m, half: [2]int{c.RopeDim / 2, cmp.Or(c.LocalRopeDim, c.RopeDim) / 2}}
}

func (r *ropes) page(pos int) {
	p := pos / ropePage
	for len(r.pages) <= p {
		r.pages = append(r.pages, nil)
	}
	if r.pages[p] != nil {
		return
	}
	half := r.half[:max(r.model.Config.Ropes, 1)]
	page := make([]float32, ropePage*2*(half[0]+half[len(half)-1]*(len(half)-1)))
	r.pages[p] = page
	for k := range half {
		for i := range ropePage {
			cos, sin := r.angles(k, p*ropePage+i)
			r.model.Rope(k, p*ropePage+i, cos, sin)
		}
	}
}

// angles needs the position's page.
func (r *ropes) angles(kind, pos int) (cos, sin []float32) {
	n := r.half[kind]
	at := r.pages[pos/ropePage][2*(kind*ropePage*r.half[0]+pos%ropePage*n):][:2*n]
	return at[:n], at[n:]
}

func (r *ropes) bytes() int64 {
	n := 0
	for _, p := range r.pages {
		n += len(p)
	}
	return int64(n) * 4
}

// resize reuses memory if it is large enough. The contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
