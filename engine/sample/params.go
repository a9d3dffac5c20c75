package sample

import (
	"fmt"
	"math"
)

// Limits of a request's parameters.
const (
	MaxTop  = 20  // most alternatives that may be asked for per token
	MaxBias = 100 // largest absolute value in LogitBias
	// MaxBiases is the most tokens in LogitBias: each step visits them for each sequence.
	MaxBiases = 1024
	maxTemp   = 100. // a higher one is a mistake: the distribution is flat long before
	minTemp   = 1e-5 // a lower one means 0
)

// Params are the sampling parameters of one request. The zero value is greedy decoding without penalties and log
// probabilities; [Default] has the OpenAI API's defaults.
type Params struct {
	// Temperature divides the logits; below 1e-5 the most probable token is taken, and TopK, TopP, MinP and Seed are
	// ignored.
	Temperature float64
	// TopK keeps the k most probable tokens; 0 keeps all.
	TopK int
	// TopP keeps the smallest set of most probable tokens whose probabilities sum to at least p; 0 and 1 keep all.
	TopP float64
	// MinP drops tokens whose probability is below MinP times the highest probability; 0 drops none.
	MinP float64
	// RepetitionPenalty divides positive and multiplies negative logits of every token in the prompt or the output: 0.01 to 100; 0 and 1 mean none.
	RepetitionPenalty float64
	// PresencePenalty is subtracted from the logit of every token in the output.
	PresencePenalty float64
	// FrequencyPenalty is subtracted once for every occurrence of a token in the output.
	FrequencyPenalty float64
	// LogitBias is added to the logits of its tokens.
	LogitBias map[int32]float32
	// Seed makes the draws repeatable: the same seed on the same logits gives the same tokens, whatever else runs. Nil
	// draws a seed.
	Seed *int64
	// MinTokens is the number of tokens that must be generated before one of Ends may be chosen.
	MinTokens int
	// Ends are the end tokens that MinTokens forbids.
	Ends []int32
	// Logprobs asks for the log probability of each chosen token.
	Logprobs bool
	// Top is the number of most probable tokens reported with each chosen one, 0 to [MaxTop]; it needs Logprobs.
	Top int
}

// Default returns the OpenAI API's defaults: temperature 1, no truncation.
func Default() Params { return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1} }

// RangeError describes a parameter that is out of range. Param is its name in the OpenAI API.
type RangeError struct {
	Param string
	Want  string
	Got   any
}

// Error implements error.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s is %v: want %s", e.Param, e.Got, e.Want)
}

// Validate returns a [*RangeError] for the first parameter that is out of range. vocab is the size of the model's
// vocabulary.
func (p Params) Validate(vocab int) error {
	for _, r := range []struct {
		param    string
		got      float64
		min, max float64
	}{
		{"temperature", p.Temperature, 0, maxTemp},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"repetition_penalty", p.RepetitionPenalty, 0, 100},
		{"presence_penalty", p.PresencePenalty, -2, 2},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2},
	} {
		if math.IsNaN(r.got) || r.got < r.min || r.got > r.max {
			return &RangeError{Param: r.param, Want: fmt.Sprintf("%v to %v", r.min, r.max), Got: r.got}
		}
	}
	if r := p.RepetitionPenalty; r != 0 && r < 0.01 { // a logit divided by less may be infinite
		return &RangeError{Param: "repetition_penalty", Want: "0.01 to 100", Got: r}
	}
	if p.TopK < 0 {
		return &RangeError{Param: "top_k", Want: "a positive number, or 0 or -1 for all tokens", Got: p.TopK}
	}
	if p.Top < 0 || p.Top > MaxTop {
		return &RangeError{Param: "top_logprobs", Want: fmt.Sprintf("0 to %d", MaxTop), Got: p.Top}
	}
	if n := len(p.LogitBias); n > MaxBiases {
		return &RangeError{Param: "logit_bias", Want: fmt.Sprintf("at most %d", MaxBiases), Got: fmt.Sprintf("a list of %d tokens", n)}
	}
	for id, b := range p.LogitBias {
		if id < 0 || int(id) >= vocab {
			return &RangeError{Param: "logit_bias", Want: fmt.Sprintf("token ids 0 to %d", vocab-1), Got: id}
		}
		if math.IsNaN(float64(b)) || b < -MaxBias || b > MaxBias {
			return &RangeError{Param: "logit_bias", Want: fmt.Sprintf("values from -%d to %d", MaxBias, MaxBias), Got: b}
		}
	}
	return nil
}
