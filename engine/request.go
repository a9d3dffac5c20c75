package engine

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/wire"
)

// Limits of one request.
const (
	MaxSequences  = 128  // most sequences of one request
	MaxStops      = 64   // most stop strings
	MaxStopLength = 1024 // bytes of a stop string
	MaxStopTokens = 1024 // most stop tokens
)

// Pooling makes one vector of the hidden states of a prompt's tokens.
type Pooling string

// Poolings. The vector is as the model gives it: not normalised.
const (
	PoolMean  Pooling = "mean"  // the mean over all tokens
	PoolLast  Pooling = "last"  // that of the last token
	PoolFirst Pooling = "first" // that of the first token, also called cls
)

// Request asks for one or several continuations of a prompt.
type Request struct {
	// Prompt is the tokens to continue, beginning-of-text included. The engine keeps the slice and does not change it.
	Prompt []int32
	// N is the number of independent continuations; 0 means 1.
	N int
	// MaxTokens bounds the tokens of each continuation; 0 means what the context has left.
	MaxTokens int
	// MinTokens is the number of tokens before which neither an end token nor a stop string ends the text.
	MinTokens int
	// Stop ends the text before the first occurrence of any of these. None may be empty.
	Stop []string
	// KeepStop leaves the stop string at the end of the text.
	KeepStop bool
	// StopTokens end the text as the model's own end tokens do.
	StopTokens []int32
	// IgnoreEnd goes on after the model's end tokens, which then count as text.
	IgnoreEnd bool
	// Sampling says how tokens are chosen.
	Sampling sample.Params
	// ScorePrompt reports each prompt token's log probability in the first event
	// of each sequence, with Sampling.Top alternatives. It makes the prompt slow: one step a token.
	ScorePrompt bool
	// NoTokens computes the prompt only. It makes sense with ScorePrompt.
	NoTokens bool
	// Priority orders the requests that wait: lower first, of equals the earlier. A running
	// request is preempted for lack of memory before one of a lower number.
	Priority int
	// Tenant is the unit of fair sharing. At equal priority tenants get equal shares of the steps; "" is a tenant too.
	Tenant string
	// Salt keeps the prompt's blocks apart in the prefix cache: only requests with the same salt share them.
	Salt string
	// Adapter is the name of a loaded adapter; "" is the model as it is.
	Adapter string
	// AdapterDigest is what the adapter's contents must be; "": anything. Where they are not, Add fails with [ErrAdapterOther].
	AdapterDigest string
	// Grammar, if not nil, says which tokens may come: the text is a sentence of it. It must be made
	// for this engine's tokenizer.
	Grammar constrain.Grammar
	// Embed asks for a vector instead of a text: one event without a token, with [Event.Embedding].
	// It goes with no other field but Prompt, Priority, Tenant, Salt and Adapter.
	Embed Pooling
	// Resume is what was made of each of the N texts before, elsewhere: its events come at once, and the text goes on behind it. It counts
	// for MaxTokens and the like. With the same seed the text is what it would have been. nil: all begin.
	Resume [][]int32
	// NoDraft computes one token a step, though the engine would guess more from the text so far.
	// What is generated does not depend on it.
	NoDraft bool
}

// RequestError says what is wrong with a request. Param is the field's name in the OpenAI API.
type RequestError struct {
	Param   string
	TooLong bool // the context is too small for the request
	Message string
	// Of what is too long: the tokens of the prompt as far as they were counted, those asked for, and the model's context; 0: unknown.
	Tokens, MaxTokens, Context int
}

// Error implements error.
func (e *RequestError) Error() string { return e.Message }

func invalid(param, format string, args ...any) error {
	return &RequestError{Param: param, Message: fmt.Sprintf(format, args...)}
}

// accepted is a checked request, with what all of its sequences share. It does not change but for scores, which the loop owns.
type accepted struct {
	Request
	adapter *adapter        // nil for the model as it is
	base    wire.Spec       // of the first sequence
	spec    []byte          // base, as the worker reads it
	scores  []sample.Choice // of the prompt's tokens from the second on
}

// check fills in defaults and reports what can't be done, as a [*RequestError] or a [*sample.RangeError].
func (e *Engine) check(r *accepted) error {
	if r.N == 0 {
		r.N = 1
	}
	switch {
	case r.N < 1 || r.N > MaxSequences:
		return invalid("n", "n is %d: want 1 to %d", r.N, MaxSequences)
	case r.MaxTokens < 0:
		return invalid("max_tokens", "max_tokens is %d: want at least 1", r.MaxTokens)
	case len(r.Stop) > MaxStops:
		return invalid("stop", "%d stop strings: want at most %d", len(r.Stop), MaxStops)
	case len(r.StopTokens) > MaxStopTokens:
		return invalid("stop_token_ids", "%d stop tokens: want at most %d", len(r.StopTokens), MaxStopTokens)
	}
	for _, s := range r.Stop {
		if s == "" || len(s) > MaxStopLength {
			return invalid("stop", "a stop string of %d bytes: want 1 to %d", len(s), MaxStopLength)
		}
	}
	if err := e.checkTokens(&r.Request); err != nil {
		return err
	}
	if r.Embed != "" {
		if err := e.checkEmbed(&r.Request); err != nil {
			return err
		}
	} else if err := e.checkLength(&r.Request); err != nil {
		return err
	}
	if len(r.Resume) > 0 && (r.N != len(r.Resume) || r.Embed != "" || r.NoTokens) {
		return invalid("resume", "%d texts to go on from, %d texts: want each, and texts with tokens", len(r.Resume), r.N)
	}
	for _, tokens := range r.Resume {
		if len(tokens) > r.MaxTokens {
			return invalid("resume", "%d tokens to go on from, at most %d tokens: want no more tokens than a text may have", len(tokens), r.MaxTokens)
		}
	}
	if r.MinTokens < 0 || r.MinTokens > r.MaxTokens {
		return invalid("min_tokens", "min_tokens is %d: want 0 to max_tokens, which is %d", r.MinTokens, r.MaxTokens)
	}
	if err := r.Sampling.Validate(e.model.Vocab); err != nil {
		return err
	}
	return e.findAdapter(r)
}

// checkTokens refuses tokens that the model does not know.
func (e *Engine) checkTokens(r *Request) error {
	vocab := e.model.Vocab
	for i, t := range r.Prompt {
		if t < 0 || int(t) >= vocab {
			return invalid("prompt", "prompt token %d is %d: the vocabulary has the tokens 0 to %d", i, t, vocab-1)
		}
	}
	for _, tokens := range r.Resume {
		for _, t := range tokens {
			if t < 0 || int(t) >= vocab {
				return invalid("resume", "token %d to go on from: the vocabulary has the tokens 0 to %d", t, vocab-1)
			}
		}
	}
	for _, t := range r.StopTokens {
		if t < 0 || int(t) >= vocab {
			return invalid("stop_token_ids", "stop token %d: the vocabulary has the tokens 0 to %d", t, vocab-1)
		}
	}
	return nil
}

// checkEmbed refuses a request for a vector that also asks for something else, or is too long.
func (e *Engine) checkEmbed(r *Request) error {
	switch {
	case r.Embed != PoolMean && r.Embed != PoolLast && r.Embed != PoolFirst:
		return invalid("pooling", "pooling %q: want %q, %q or %q", r.Embed, PoolMean, PoolLast, PoolFirst)
	case r.N != 1 || r.MaxTokens > 0 || r.ScorePrompt || r.Grammar != nil:
		return invalid("input", "an embedding is asked for together with a text: ask for one of them")
	case len(r.Prompt) == 0:
		return invalid("input", "the input has no tokens: want at least one")
	case len(r.Prompt) > e.context:
		return &RequestError{Param: "input", TooLong: true, Tokens: len(r.Prompt), Context: e.context, Message: fmt.Sprintf(
			"the input has %d tokens. This model's maximum context length is %d tokens: shorten it", len(r.Prompt), e.context)}
	}
	return nil
}

// checkLength sets MaxTokens, or says by how much the request is too long.
func (e *Engine) checkLength(r *Request) error {
	prompt := len(r.Prompt)
	tooLong := func(format string, args ...any) error {
		return &RequestError{Param: "prompt", TooLong: true, Tokens: prompt, MaxTokens: r.MaxTokens, Context: e.context, Message: fmt.Sprintf(format, args...)}
	}
	if prompt == 0 {
		return invalid("prompt", "the prompt has no tokens: want at least one")
	}
	if r.NoTokens && prompt <= e.context {
		r.MaxTokens = 1 // scored, never sampled
		return nil
	}
	left := e.context - prompt
	switch {
	case left < 1:
		return tooLong("the prompt has %d tokens. This model's maximum context length is %d tokens and must hold the answer too: shorten the prompt", prompt, e.context)
	case r.MaxTokens > left:
		return tooLong("the prompt has %d tokens and max_tokens is %d, together %d. This model's maximum context length is %d tokens: shorten the prompt or ask for at most %d tokens",
			prompt, r.MaxTokens, prompt+r.MaxTokens, e.context, left)
	case r.MaxTokens == 0:
		r.MaxTokens = left
	}
	return nil
}
