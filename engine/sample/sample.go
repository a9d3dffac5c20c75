// Package sample chooses the next token of one sequence from the model's logits, and reports log probabilities.
//
// The life of one choice, in vLLM's order:
//
//  1. Reported log probabilities are of the raw distribution.
//  2. Tokens that are not in the mask are dropped, and end tokens before min_tokens.
//  3. The logit bias is added.
//  4. Penalties: repetition over prompt and output, then frequency and presence over the output.
//  5. Temperature 0 takes the largest logit; of equals, the lowest token.
//  6. Otherwise logits are divided by the temperature, and tokens dropped by min-p, top-k, then top-p.
//  7. One uniform number picks a token by inverse transform sampling, in the order of ids.
//
// That number is a hash of the seed, the continuation's index and the token's position. So a choice is a pure function
// of the arguments of [Sampler.Next]: it can be computed again.
package sample

import (
	"errors"
	"math"
	"math/rand/v2"
)

// ErrNoToken means that every token is forbidden, or that penalties and bias leave no finite maximum.
var ErrNoToken = errors.New("no token is left to choose from: the sampling parameters forbid all")

// ErrDamaged means that the model's output is NaN or +Inf.
var ErrDamaged = errors.New("the model's output is not a number: the model file is damaged, download it again")

// Choice is a chosen token. Logprob and Top need [Params.Logprobs].
type Choice struct {
	Token   int32
	Logprob float32
	Top     []Alternative // most probable first; maybe without Token
}

// Alternative is a token with its log probability.
type Alternative struct {
	Token   int32
	Logprob float32
}

// Sampler chooses one sequence's tokens. A new one makes the same choices. It belongs to one goroutine.
type Sampler struct {
	params Params
	index  uint64
	seed   uint64
	bias   []Alternative // Params.LogitBias
	seen   occurrences
	undo   []Alternative // changed logits' old values
}

// New returns a sampler of a request's continuation index, with draws of its own. p must be valid. Without a seed it
// draws one: see [Params.WithSeed].
func New(p Params, index int) *Sampler {
	p = p.WithSeed()
	s := &Sampler{params: p, index: uint64(index)}
	if p.Seed != nil {
		s.seed = uint64(*p.Seed)
	}
	for t, b := range p.LogitBias {
		s.bias = append(s.bias, Alternative{t, b})
	}
	return s
}

// WithSeed returns p with a seed, drawn if it needs one and has none.
func (p Params) WithSeed() Params {
	if p.Seed == nil && !p.greedy() {
		seed := rand.Int64()
		p.Seed = &seed
	}
	return p
}

func (p *Params) greedy() bool { return p.Temperature < minTemp }

func (p *Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }

func (p *Params) penalises() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

// Next chooses the token at position pos, after prompt and made. mask has the allowed tokens, bit t%64 of word t/64;
// nil: all. logits is modified and restored.
//
// Next fails with [ErrNoToken], and with [ErrDamaged] if a logit is NaN or +Inf: it checks all before a sequence's
// first token, and later those that it reads. prompt is read again only if it is another slice.
func (s *Sampler) Next(logits []float32, prompt, made []int32, pos int, mask []uint64) (Choice, error) {
	if len(made) == 0 && damaged(logits) { // a damaged weight shows in every token, and the check costs as much as the choice
		return Choice{}, ErrDamaged
	}
	s.adjust(logits, prompt, made)
	token := argmax(logits, mask)
	if token >= 0 && !math.IsInf(float64(logits[token]), 1) {
		if !s.params.greedy() { // else 5
			token = s.draw(logits, mask, logits[token], uniform(s.seed, s.index, uint64(pos)))
		}
	} else {
		token = -1
	}
	s.restore(logits)
	switch {
	case token < 0 && damaged(logits):
		return Choice{}, ErrDamaged
	case token < 0:
		return Choice{}, ErrNoToken
	}
	if s.params.Logprobs { // 1
		return Score(logits, token, s.params.Top), nil
	}
	return Choice{Token: token}, nil
}

func damaged(logits []float32) bool {
	for _, l := range logits {
		if !(l <= math.MaxFloat32) {
			return true
		}
	}
	return false
}

// adjust applies steps 2 (but the mask), 3 and 4.
func (s *Sampler) adjust(logits []float32, prompt, made []int32) {
	s.undo = s.undo[:0]
	set := func(t int32, l float32) {
		s.undo = append(s.undo, Alternative{t, logits[t]})
		logits[t] = l
	}
	known := func(t int32) bool { return t >= 0 && int(t) < len(logits) }
	if len(made) < s.params.MinTokens { // 2
		for _, t := range s.params.Ends {
			if known(t) {
				set(t, negInf)
			}
		}
	}
	for _, b := range s.bias { // 3
		if known(b.Token) {
			set(b.Token, logits[b.Token]+b.Logprob)
		}
	}
	if !s.params.penalises() {
		return
	}
	repeats := s.params.repeats() // 4
	s.seen.follow(prompt, made, repeats)
	for _, o := range s.seen.list {
		if known(o.token) {
			set(o.token, s.params.penalised(logits[o.token], o.count, repeats))
		}
	}
}

// count is of the output; 0: only in the prompt.
func (p *Params) penalised(l float32, count int32, repeats bool) float32 {
	if repeats && l > 0 {
		l /= float32(p.RepetitionPenalty)
	} else if repeats {
		l *= float32(p.RepetitionPenalty)
	}
	if count > 0 {
		l -= float32(p.FrequencyPenalty)*float32(count) + float32(p.PresencePenalty)
	}
	return l
}

func (s *Sampler) restore(logits []float32) {
	for i := len(s.undo) - 1; i >= 0; i-- {
		logits[s.undo[i].Token] = s.undo[i].Logprob
	}
}

// uniform returns a number in [0, 1) with 53 random bits.
func uniform(seed, index, pos uint64) float64 {
	h := mix(mix(mix(seed)+index) + pos)
	return float64(h>>11) / (1 << 53)
}

// mix is a step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
