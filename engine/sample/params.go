package sample

import (
	"fmt"
	"math"
)

const (
	MaxTop  = 20  // alternatives per token
	MaxBias = 100 // absolute, in LogitBias
	// Each step visits all biases.
	MaxBiases = 1024
	maxTemp   = 100. // the distribution is flat long before
	minTemp   = 1e-5 // lower means 0
)

// Params are one request's. The zero value decodes greedily; [Default] is OpenAI's.
type Params struct {
	// Temperature divides the logits. Below 1e-5 the most probable token is taken, and TopK, TopP, MinP and Seed are
	// ignored.
	Temperature float64 `json:"temperature,omitempty"`
	// TopK keeps the k most probable tokens; 0: all.
	TopK int `json:"top_k,omitempty"`
	// TopP keeps the fewest most probable tokens whose probabilities sum to at least p; 0 and 1: all.
	TopP float64 `json:"top_p,omitempty"`
	// MinP drops tokens of less than MinP times the highest probability.
	MinP float64 `json:"min_p,omitempty"`
	// RepetitionPenalty divides positive and multiplies negative logits of all tokens in prompt or output: 0.01 to 100;
	// 0 and 1: none.
	RepetitionPenalty float64 `json:"repetition_penalty,omitempty"`
	// PresencePenalty is subtracted from the logit of each token in the output.
	PresencePenalty float64 `json:"presence_penalty,omitempty"`
	// FrequencyPenalty is subtracted per occurrence in the output.
	FrequencyPenalty float64           `json:"frequency_penalty,omitempty"`
	LogitBias        map[int32]float32 `json:"logit_bias,omitempty"`
	// Seed makes the draws repeatable, whatever else runs. nil: one is drawn.
	Seed *int64 `json:"seed,omitempty"`
	// Logprobs reports each chosen token's log probability.
	Logprobs bool `json:"logprobs,omitempty"`
	// Top is how many of the most probable tokens are reported, 0 to [MaxTop]; it needs Logprobs.
	Top int `json:"top,omitempty"`
	// MinTokens must be generated before one of Ends may be chosen.
	MinTokens int     `json:"min_tokens,omitempty"`
	Ends      []int32 `json:"ends,omitempty"`
}

// Default returns the OpenAI API's defaults.
func Default() Params { return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1} }

// RangeError is a parameter out of range. Param is OpenAI's name.
type RangeError struct {
	Param string
	Want  string
	Got   any
}

// Error implements error.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s is %v: want %s", e.Param, e.Got, e.Want)
}

// Validate returns a [*RangeError] for the first parameter out of range.
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
