// Package sample chooses the next token of one sequence from the model's
// logits, and reports log probabilities. It knows tokens only by number.
//
// The life of one choice, in vLLM's order:
//
//  1. The log probabilities to report are taken from the raw distribution:
//     before temperature, penalties, bias and truncation.
//  2. Forbidden tokens (an end token before min_tokens) drop out.
//  3. The logit bias is added.
//  4. Penalties: repetition over prompt and output, then frequency and presence
//     over the output.
//  5. Temperature 0 takes the largest logit; of equals, the lowest token.
//  6. Else logits are divided by the temperature, and tokens drop out by min-p,
//     then top-k, then top-p over what is left.
//  7. One uniform number from the sequence's own generator picks a token.
//
// A [Sampler] belongs to one sequence and one goroutine. Its choices depend on
// its parameters, its prompt, the logits and its own earlier choices, and never
// on what else is in the batch, so a seeded request repeats itself.
package sample

import (
	"errors"
	"math"
	"math/rand/v2"
)

// ErrNoToken is returned when there is nothing to choose from: the model's
// output is infinite or not a number, or every token is forbidden.
var ErrNoToken = errors.New("the model's output has no finite maximum: the model file or the sampling parameters are broken")

// Choice is a chosen token. Logprob and Top are set if [Params.Logprobs] is.
type Choice struct {
	Token   int32
	Logprob float32
	Top     []Alternative // most probable first; may or may not contain Token
}

// Alternative is a token with its log probability.
type Alternative struct {
	Token   int32
	Logprob float32
}

// Sampler holds the state of one sequence: its generator and the tokens that
// count for penalties.
type Sampler struct {
	params Params
	rng    *rand.Rand
	// count holds the output's tokens; a token that occurs only in the prompt is present with 0.
	count map[int32]int
	raw   []float32 // the logits as they came, where they are needed after they changed
	left  heap      // the tokens still in the draw
}

// New makes a sampler for a sequence that starts with prompt. index tells apart
// the several sequences of one request: with the same seed each has its own,
// repeatable draws. The parameters must be valid ([Params.Validate]).
func New(p Params, prompt []int32, index int) *Sampler {
	s := &Sampler{params: p}
	if s.penalises() {
		s.count = make(map[int32]int)
		if s.repeats() {
			for _, t := range prompt {
				s.count[t] = 0
			}
		}
	}
	if p.Temperature > 0 {
		seed := rand.Uint64()
		if p.Seed != nil {
			seed = uint64(*p.Seed)
		}
		s.rng = rand.New(rand.NewPCG(seed, uint64(index)))
	}
	return s
}

func (s *Sampler) repeats() bool {
	return s.params.RepetitionPenalty != 0 && s.params.RepetitionPenalty != 1
}

func (s *Sampler) penalises() bool {
	return s.repeats() || s.params.PresencePenalty != 0 || s.params.FrequencyPenalty != 0
}

// Next chooses a token and remembers it for the penalties. It overwrites
// logits, whose index is the token. Tokens in forbidden are never chosen, and
// neither is one whose logit is NaN. It fails with [ErrNoToken].
func (s *Sampler) Next(logits []float32, forbidden []int32) (Choice, error) {
	if s.params.Logprobs {
		s.raw = append(s.raw[:0], logits...)
	}
	for _, t := range forbidden { // 2
		if t >= 0 && int(t) < len(logits) {
			logits[t] = negInf
		}
	}
	for t, b := range s.params.LogitBias { // 3
		logits[t] += b
	}
	s.penalise(logits) // 4
	token := argmax(logits)
	if token < 0 || math.IsInf(float64(logits[token]), 1) {
		return Choice{}, ErrNoToken
	}
	if s.params.Temperature > 0 { // else 5
		token = s.draw(logits, logits[token])
	}
	if s.count != nil {
		s.count[token]++
	}
	if s.params.Logprobs { // 1
		return Score(s.raw, token, s.params.Top), nil
	}
	return Choice{Token: token}, nil
}

// penalise applies the penalties of every token seen so far.
func (s *Sampler) penalise(logits []float32) {
	repetition := float32(s.params.RepetitionPenalty)
	repeats := s.repeats()
	for t, n := range s.count {
		if t < 0 || int(t) >= len(logits) {
			continue
		}
		l := logits[t]
		if repeats && l > 0 {
			l /= repetition
		} else if repeats {
			l *= repetition
		}
		if n > 0 {
			l -= float32(s.params.FrequencyPenalty)*float32(n) + float32(s.params.PresencePenalty)
		}
		logits[t] = l
	}
}
