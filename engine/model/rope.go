package model

import (
	"cmp"
	"math"
)

type rotation struct {
	short, long []float64 // angles per position, [RopeDim/2]; the same slice if the context's length does not matter
	mag         float64
}

func (m *Model) makeRopes() {
	c := &m.Config
	short, long := m.RopeFactors, m.RopeFactors
	if m.ropeShort != nil && m.RopeFactors == nil {
		short, long = m.ropeShort, m.ropeLong
	}
	r := rotation{short: c.frequencies(short), mag: c.RopeMag}
	r.long = r.short
	if m.ropeLong != nil {
		r.long = c.frequencies(long)
	}
	if c.RopeYaRN && c.RopeScale > 1 {
		r.mag *= 1 + 0.1*math.Log(c.RopeScale) // YaRN, equation 22
	}
	m.ropes[0] = r
	if c.Ropes == 2 {
		local := Config{RopeBase: c.RopeLocal, RopeDim: cmp.Or(c.LocalRopeDim, c.RopeDim), RopeScale: 1}
		f := local.frequencies(nil)
		m.ropes[1] = rotation{short: f, long: f, mag: 1}
	}
}

func (c *Config) frequencies(factors []float32) []float64 {
	f := make([]float64, c.RopeDim/2)
	low, high := c.ramp()
	for i := range f {
		x := math.Pow(c.RopeBase, -2*float64(i)/float64(c.RopeDim))
		if factors != nil {
			x /= float64(factors[i])
		}
		f[i] = x / c.RopeScale
		if c.RopeYaRN { // fast pairs are unchanged, slow ones scaled, others mixed
			keep := 1 - max(0, min(1, (float64(i)-low)/max(0.001, high-low)))
			f[i] = f[i]*(1-keep) + x*keep
		}
	}
	return f
}

// ramp returns the pairs with RopeFast and RopeSlow turns over RopeTrain positions, between which YaRN interpolates.
func (c *Config) ramp() (low, high float64) {
	if !c.RopeYaRN {
		return 0, 0
	}
	pair := func(turns float64) float64 {
		return float64(c.RopeDim) * math.Log(float64(c.RopeTrain)/(turns*2*math.Pi)) / (2 * math.Log(c.RopeBase))
	}
	return max(0, math.Floor(pair(c.RopeFast))), min(float64(c.RopeDim-1), math.Ceil(pair(c.RopeSlow)))
}

// Rope fills cos and sin, [RopeDim/2] or of the second kind [LocalRopeDim/2], with the rotation (Layer.Rope) at pos,
// times its magnitude. LongRoPE's factors depend on Config.Context: see Limit.
func (m *Model) Rope(kind, pos int, cos, sin []float32) {
	r := &m.ropes[kind]
	f := r.short
	if m.Config.Context > m.Config.RopeTrain {
		f = r.long
	}
	for i, x := range f {
		s, c := math.Sincos(float64(pos) * x)
		cos[i], sin[i] = float32(c*r.mag), float32(s*r.mag)
	}
}

// Rotations returns a model of shape and rotations only, without the file's memory.
func (m *Model) Rotations() *Model { return &Model{Config: m.Config, ropes: m.ropes} }

// Limit lowers Config.Context to n, if n is above 0, before anyone uses the model.
func (m *Model) Limit(n int) {
	if n > 0 {
		m.Config.Context = min(m.Config.Context, n)
	}
}
