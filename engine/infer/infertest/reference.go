package infertest

import (
	"cmp"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine/model"
)

// Reference is a slow forward pass as the papers describe it: one sequence, no cache, no quantised activations,
// everything in double precision on decoded weights. It supports all that package model loads but encoders and
// gemma4, and returns the logits after each token, [len(tokens)][Vocab].
func Reference(m *model.Model, tokens []int32, images ...Seen) [][]float64 {
	r := &reference{m: m, c: &m.Config, images: images}
	out := make([][]float64, len(tokens))
	head := decode(&m.Output)
	for i, x := range r.hidden(tokens) {
		out[i] = head.times(x, nil)
		softcap(out[i], r.c.LogitSoftcap)
	}
	return out
}

// ReferenceHidden returns the normed hidden state after each token, [len(tokens)][Dim].
func ReferenceHidden(m *model.Model, tokens []int32) [][]float64 {
	r := &reference{m: m, c: &m.Config}
	return r.hidden(tokens)
}

// RoutingMargins returns, for each token, the smallest gap in any layer between the router's logits of the last
// chosen expert and the first one not chosen. If it is small, rounding decides. Infinite without experts.
func RoutingMargins(m *model.Model, tokens []int32) []float64 {
	r := &reference{m: m, c: &m.Config, margins: slices.Repeat([]float64{math.Inf(1)}, len(tokens))}
	if m.Config.Experts > m.Config.ExpertsUsed {
		r.hidden(tokens)
	}
	return r.margins
}

type reference struct {
	m       *model.Model
	c       *model.Config
	margins []float64
	images  []Seen
}

type dense struct {
	cols int
	x    []float32
}

func decode(m *model.Matrix) dense {
	d := dense{m.Cols, make([]float32, m.Rows*m.Cols)}
	for r := range m.Rows {
		m.Row(d.x[r*m.Cols:], r)
	}
	return d
}

func (d dense) times(x []float64, bias []float32) []float64 {
	out := make([]float64, len(d.x)/d.cols)
	for r := range out {
		var sum float64
		for i, w := range d.x[r*d.cols:][:d.cols] {
			sum += float64(w) * x[i]
		}
		out[r] = sum
		if len(bias) > 0 {
			out[r] += float64(bias[r])
		}
	}
	return out
}

func (r *reference) hidden(tokens []int32) [][]float64 {
	xs := make([][]float64, len(tokens))
	row := make([]float32, r.c.Dim)
	for i, t := range tokens {
		r.m.Embed.Row(row, int(t))
		xs[i] = make([]float64, r.c.Dim)
		for j, v := range row {
			xs[i][j] = float64(v) * float64(r.c.EmbedScale)
		}
	}
	for _, m := range r.images {
		for i, v := range m.Vectors {
			xs[m.At+i] = slices.Clone(v)
		}
	}
	for i := range r.m.Layers {
		l := &r.m.Layers[i]
		if l.DeltaGate.Rows > 0 {
			r.deltaNet(l, xs)
		} else {
			r.attention(l, xs)
		}
		r.feedForward(l, xs)
	}
	for i, x := range xs {
		xs[i] = r.norm(x, r.m.OutputNorm)
	}
	return xs
}

func (r *reference) norm(x []float64, weights []float32) []float64 {
	if weights == nil {
		return x
	}
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(r.c.RMSEps))
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale * float64(weights[i])
	}
	return out
}

func (r *reference) heads(v []float64, l *model.Layer, norm []float32, pos int) {
	half := r.c.RopeDim / 2
	cos, sin := make([]float32, half), make([]float32, half)
	r.m.Rope(l.Rope, pos, cos, sin)
	for h := 0; h < len(v); h += r.c.HeadDim {
		head := v[h : h+r.c.HeadDim]
		copy(head, r.norm(head, norm))
		for i := range half {
			a, b := 2*i, 2*i+1
			if r.c.RopeNeoX {
				a, b = i, i+half
			}
			c, s := float64(cos[i]), float64(sin[i])
			head[a], head[b] = head[a]*c-head[b]*s, head[a]*s+head[b]*c
		}
	}
}

func (r *reference) attention(l *model.Layer, xs [][]float64) {
	q, k, v, o := decode(&l.Q), decode(&l.K), decode(&l.V), decode(&l.O)
	var qs, ks, vs [][]float64
	gates := make([][]float64, len(xs))
	for pos, x := range xs {
		n := r.norm(x, l.AttnNorm)
		query := q.times(n, l.QBias)
		if l.Gated {
			query, gates[pos] = r.ungate(query)
		}
		qs = append(qs, query)
		ks = append(ks, k.times(n, l.KBias))
		vs = append(vs, v.times(n, l.VBias))
		r.heads(qs[pos], l, l.QNorm, pos)
		r.heads(ks[pos], l, l.KNorm, pos)
	}
	for pos, x := range xs {
		first := 0
		if l.Window > 0 {
			first = max(0, pos-l.Window+1)
		}
		end := pos + 1
		for _, m := range r.images {
			if m.At <= pos && pos < m.At+len(m.Vectors) {
				end = m.At + len(m.Vectors)
			}
		}
		mixed := make([]float64, r.c.Heads*r.c.HeadDim)
		for h := range r.c.Heads {
			kv := h * r.c.KVHeads / r.c.Heads * r.c.HeadDim
			r.attend(mixed[h*r.c.HeadDim:][:r.c.HeadDim], qs[pos][h*r.c.HeadDim:][:r.c.HeadDim], ks[first:end], vs[first:end], kv, l.Sinks[min(h, len(l.Sinks)):])
		}
		for i, g := range gates[pos] {
			mixed[i] *= sigmoid(g)
		}
		add(x, r.norm(o.times(mixed, l.OBias), l.AttnPostNorm))
	}
}

func (r *reference) ungate(both []float64) (q, gate []float64) {
	for h := 0; h < len(both); h += 2 * r.c.HeadDim {
		q = append(q, both[h:h+r.c.HeadDim]...)
		gate = append(gate, both[h+r.c.HeadDim:h+2*r.c.HeadDim]...)
	}
	return q, gate
}

func (r *reference) deltaNet(l *model.Layer, xs [][]float64) {
	qkv, gate, alpha, beta, o := decode(&l.Q), decode(&l.DeltaGate), decode(&l.Alpha), decode(&l.Beta), decode(&l.O)
	d, keys := r.c.DeltaDim, r.c.DeltaKeys
	inputs, states := make([][]float64, r.c.DeltaConv-1), make([][]float64, r.c.DeltaHeads)
	for i := range inputs {
		inputs[i] = make([]float64, r.c.DeltaChannels())
	}
	for h := range states {
		states[h] = make([]float64, d*d)
	}
	for _, x := range xs {
		n := r.norm(x, l.AttnNorm)
		inputs = append(inputs, qkv.times(n, nil))
		mixed := make([]float64, r.c.DeltaChannels())
		for c := range mixed {
			for j := range r.c.DeltaConv {
				mixed[c] += float64(l.Conv[c*r.c.DeltaConv+j]) * inputs[len(inputs)-r.c.DeltaConv+j][c]
			}
			mixed[c] *= sigmoid(mixed[c])
		}
		decay, rate, z := alpha.times(n, l.DecayBias), beta.times(n, nil), gate.times(n, nil)
		var out []float64
		for h, s := range states {
			q, k, v := unit(mixed[h%keys*d:][:d], r.c.RMSEps), unit(mixed[(keys+h%keys)*d:][:d], r.c.RMSEps), mixed[(2*keys+h)*d:][:d]
			head := deltaRule(s, q, k, v, math.Exp(float64(l.Decay[h])*math.Log1p(math.Exp(decay[h]))), sigmoid(rate[h]))
			for j, y := range r.norm(head, l.DeltaNorm) {
				g := z[h*d+j]
				out = append(out, y*g*sigmoid(g))
			}
		}
		add(x, o.times(out, nil))
	}
}

// deltaRule changes a head's state, [key, value], and returns what its query, divided by √len(q), finds there.
func deltaRule(s, q, k, v []float64, decay, rate float64) []float64 {
	d := len(q)
	out := make([]float64, d)
	for j := range d {
		have := 0.0
		for i := range d {
			s[i*d+j] *= decay
			have += s[i*d+j] * k[i]
		}
		for i := range d {
			s[i*d+j] += k[i] * rate * (v[j] - have)
			out[j] += s[i*d+j] * q[i] / math.Sqrt(float64(d))
		}
	}
	return out
}

func unit(x []float64, eps float32) []float64 {
	sum := float64(eps)
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum)
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// attend is for the head at kv in keys and values.
func (r *reference) attend(out, q []float64, ks, vs [][]float64, kv int, sinks []float32) {
	weights := make([]float64, len(ks))
	for p, k := range ks {
		for i, x := range q {
			weights[p] += x * k[kv+i]
		}
		weights[p] *= float64(r.c.AttnScale)
	}
	softcap(weights, r.c.AttnSoftcap)
	if len(sinks) > 0 {
		weights = append(weights, float64(sinks[0]))
	}
	softmax(weights)
	for p, w := range weights[:len(ks)] {
		for i := range out {
			out[i] += w * vs[p][kv+i]
		}
	}
}

func (r *reference) feedForward(l *model.Layer, xs [][]float64) {
	if l.Router.Rows > 0 {
		r.mixture(l, xs)
		return
	}
	gate, up, down := decode(&l.Gate), decode(&l.Up), decode(&l.Down)
	for _, x := range xs {
		add(x, r.norm(r.gated(gate, up, down, r.norm(x, l.FFNNorm), nil, nil, nil), l.FFNPostNorm))
	}
}

func (r *reference) gated(gate, up, down dense, x []float64, gateBias, upBias, downBias []float32) []float64 {
	g, u := gate.times(x, gateBias), up.times(x, upBias)
	for i, v := range g {
		switch {
		case r.c.ClampedGate:
			v = min(v, 7)
			g[i] = v / (1 + math.Exp(-1.702*v)) * (max(-7, min(u[i], 7)) + 1)
		case r.c.GELU:
			g[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) * u[i]
		default:
			g[i] = v / (1 + math.Exp(-v)) * u[i]
		}
	}
	return down.times(g, downBias)
}

func (r *reference) mixture(l *model.Layer, xs [][]float64) {
	router, shared := decode(&l.Router), []dense{decode(&l.Gate), decode(&l.Up), decode(&l.Down)}
	var gate, up, down []dense
	for i := range l.ExpertGate {
		gate, up, down = append(gate, decode(&l.ExpertGate[i])), append(up, decode(&l.ExpertUp[i])), append(down, decode(&l.ExpertDown[i]))
	}
	for pos, x := range xs {
		n := r.norm(x, l.FFNNorm)
		p := router.times(n, l.RouterBias)
		order := slices.Clone(p) // by logits, or by sigmoids, of which a small change is a quarter of the logits'
		softmax(p)
		if r.c.ExpertSigmoid {
			for e, v := range order {
				p[e] = 1 / (1 + math.Exp(-v))
				order[e] = 4 * p[e]
				if l.Choice != nil {
					order[e] += 4 * float64(l.Choice[e])
				}
			}
		}
		best := make([]int, len(p))
		for i := range best {
			best[i] = i
		}
		slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(order[b], order[a]) })
		if used := r.c.ExpertsUsed; r.margins != nil && used < len(best) {
			r.margins[pos] = min(r.margins[pos], order[best[used-1]]-order[best[used]])
		}
		best = best[:r.c.ExpertsUsed]
		sum := 0.0
		for _, e := range best {
			sum += p[e]
		}
		if !r.c.ExpertNorm {
			sum = 1
		}
		if r.c.ExpertScale != 0 {
			sum /= float64(r.c.ExpertScale)
		}
		y := make([]float64, len(x))
		if l.Gate.Rows > 0 {
			y = r.gated(shared[0], shared[1], shared[2], n, nil, nil, nil)
		}
		bias := func(all []float32, e int) []float32 { return all[e*len(all)/len(p):][:len(all)/len(p)] }
		for _, e := range best {
			for i, v := range r.gated(gate[e], up[e], down[e], n, bias(l.ExpertGateBias, e), bias(l.ExpertUpBias, e), bias(l.ExpertDownBias, e)) {
				y[i] += p[e] / sum * v
			}
		}
		add(x, r.norm(y, l.FFNPostNorm))
	}
}

func softcap(x []float64, limit float32) {
	if limit == 0 {
		return
	}
	c := float64(limit)
	for i, v := range x {
		x[i] = c * math.Tanh(v/c)
	}
}

func softmax(x []float64) {
	top, sum := slices.Max(x), 0.0
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func add(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
}
