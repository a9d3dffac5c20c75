package engine

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/worker"
)

const (
	MaxSequences  = 128  // of one request
	MaxStops      = 66   // 64 of a client, and a model's own
	MaxStopLength = 1024 // bytes
	MaxStopTokens = 1024
)

// Pooling makes one vector of a prompt's hidden states.
type Pooling string

// The vector is not normalised.
const (
	PoolMean  Pooling = "mean"  // over all tokens
	PoolLast  Pooling = "last"  // of the last token
	PoolFirst Pooling = "first" // of the first token, also called cls
	PoolRank  Pooling = "rank"  // a reranker's number for two texts
)

// Request asks for continuations of a prompt, or for a vector.
type Request struct {
	// Prompt includes beginning-of-text. The engine keeps the slice and does not change it.
	Prompt []int32
	// N is how many continuations; 0: 1.
	N int
	// MaxTokens is per continuation; 0: the rest of the context.
	MaxTokens int
	// MinTokens come before any end token or stop string ends the text.
	MinTokens int
	// Stop ends the text before the first of these. None may be empty.
	Stop []string
	// KeepStop leaves the stop string in the text.
	KeepStop   bool
	StopTokens []int32
	// IgnoreEnd makes the model's end tokens count as text.
	IgnoreEnd bool
	Sampling  sample.Params
	// ScorePrompt reports each prompt token's log probability in each sequence's first event, with Sampling.Top
	// alternatives. The prompt then takes a step a token.
	ScorePrompt bool
	// NoTokens computes the prompt only.
	NoTokens bool
	// Priority orders waiting requests, lower first, then by arrival; higher ones are preempted first.
	Priority int
	// Tenant shares fairly with others of equal priority. "" is a tenant too.
	Tenant string
	// Salt separates prompts in the prefix cache.
	Salt string
	// Adapter is a loaded one's name; "": the base model.
	Adapter string
	// AdapterDigest must be the adapter's, or Add fails with [ErrAdapterOther]; "": any.
	AdapterDigest string
	// Grammar, if not nil, constrains the text. It is for this engine's tokenizer.
	Grammar constrain.Grammar
	// Embed asks for a vector instead of text: one event with [Event.Embedding]. Only Prompt, Priority, Tenant, Salt
	// and Adapter may be set with it.
	Embed Pooling
	// Resume has, for each of the N texts, the tokens that another server generated. Their events are sent at once, and
	// they count toward all limits. With the same seed the text is as without the interruption.
	Resume [][]int32
	// Images are in order, and end before the prompt's last token. The engine sets their N.
	Images []infer.Image
}

// RequestError is an invalid request. Param is OpenAI's field.
type RequestError struct {
	Param   string
	TooLong bool // for the context
	Message string
	// Tokens is as far as counted, MaxTokens as asked for; 0: unknown.
	Tokens, MaxTokens, Context int
}

// Error implements error.
func (e *RequestError) Error() string { return e.Message }

func invalid(param, format string, args ...any) error {
	return &RequestError{Param: param, Message: fmt.Sprintf(format, args...)}
}

// accepted is checked. It is immutable but for scores, which the loop owns.
type accepted struct {
	Request
	adapter *adapter        // nil: the base model
	base    worker.Spec     // of the first sequence
	spec    []byte          // base, encoded
	scores  []sample.Choice // of the prompt's tokens from the second on

	pictured string // digest of Images; "": none
}

func (e *Engine) check(r *accepted) error {
	if r.N == 0 {
		r.N = 1
	}
	if err := e.checkKind(r.Embed); err != nil {
		return err
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
	if err := e.checkImages(r); err != nil {
		return err
	}
	if r.MinTokens < 0 || r.MinTokens > r.MaxTokens {
		return invalid("min_tokens", "min_tokens is %d: want 0 to max_tokens, which is %d", r.MinTokens, r.MaxTokens)
	}
	if err := r.Sampling.Validate(e.model.Vocab); err != nil {
		return err
	}
	return e.findAdapter(r)
}

// "does not support" tells a probe to ask for something else.
func (e *Engine) checkKind(want Pooling) error {
	c := &e.model
	switch {
	case c.Ranks && want != PoolRank:
		return invalid("model", "the model is a reranker, which does not support texts and embeddings: ask it for scores of documents")
	case c.Encoder && want == "":
		return invalid("model", "the model makes embeddings and does not support texts: ask it for embeddings")
	case want == PoolRank && !c.Ranks:
		return invalid("model", "the model does not support the pooling %q: it is no reranker", want)
	}
	return nil
}

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

func (e *Engine) checkEmbed(r *Request) error {
	switch {
	case r.Embed != PoolMean && r.Embed != PoolLast && r.Embed != PoolFirst && r.Embed != PoolRank:
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

// checkLength sets MaxTokens.
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
