package serve

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/sample"
)

// In bytes.
const maxSalt = 256

// In options nil is absent or null.
type options struct {
	Model string `json:"model"`

	N                   *int      `json:"n"`
	BestOf              *int      `json:"best_of"`
	MaxTokens           *int      `json:"max_tokens"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	MinTokens           *int      `json:"min_tokens"`
	Temperature         *float64  `json:"temperature"`
	TopP                *float64  `json:"top_p"`
	TopK                *int      `json:"top_k"`
	MinP                *float64  `json:"min_p"`
	RepetitionPenalty   *float64  `json:"repetition_penalty"`
	PresencePenalty     *float64  `json:"presence_penalty"`
	FrequencyPenalty    *float64  `json:"frequency_penalty"`
	LogitBias           tokenBias `json:"logit_bias"`
	Seed                *int64    `json:"seed"`

	Stop       stringList `json:"stop"`
	StopTokens []int32    `json:"stop_token_ids"`
	KeepStop   bool       `json:"include_stop_str_in_output"`
	IgnoreEnd  bool       `json:"ignore_eos"`

	Stream        bool `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"` // vLLM's: in each chunk
	} `json:"stream_options"`

	Priority *int       `json:"priority"`
	Salt     *string    `json:"cache_salt"`
	BadWords stringList `json:"bad_words"`

	structure
}

type chatRequest struct {
	options
	prompt
	Logprobs    bool            `json:"logprobs"`
	TopLogprobs *int            `json:"top_logprobs"`
	ToolChoice  json.RawMessage `json:"tool_choice"`

	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	PromptLogprobs    *int            `json:"prompt_logprobs"`
	Effort            *string         `json:"reasoning_effort"`
	ThoughtTokens     *int            `json:"thinking_token_budget"` // vLLM's
	Functions         json.RawMessage `json:"functions"`
	elsewhere
	FunctionCall json.RawMessage `json:"function_call"`
}

// elsewhere has OpenAI's fields for features that this engine lacks.
type elsewhere struct {
	Modalities []string        `json:"modalities"`
	Audio      json.RawMessage `json:"audio"`
	WebSearch  json.RawMessage `json:"web_search_options"`
	Moderation json.RawMessage `json:"moderation"`
	Verbosity  string          `json:"verbosity"`
	Store      bool            `json:"store"`
}

func (e *elsewhere) refuse() error {
	switch {
	case slices.ContainsFunc(e.Modalities, func(m string) bool { return m != "text" }):
		return unsupported("modalities", "an answer that is no text")
	case !null(e.Audio):
		return unsupported("audio", "a spoken answer")
	case !null(e.WebSearch):
		return unsupported("web_search_options", "a search of the web")
	case !null(e.Moderation):
		return unsupported("moderation", "a judgement of texts")
	case e.Verbosity != "" && e.Verbosity != "medium":
		return unsupported("verbosity", "an answer that is longer or shorter than the model makes it")
	case e.Store:
		return unsupported("store", "a store of answers")
	}
	return nil
}

// prompt is read by /tokenize too.
type prompt struct {
	Messages            []message                  `json:"messages"`
	Tools               json.RawMessage            `json:"tools"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	TemplateArgs        map[string]json.RawMessage `json:"chat_template_kwargs"`
	// Continue continues the last message, the assistant's (vLLM's field).
	Continue bool `json:"continue_final_message"`

	pictures
}

type message struct {
	Role       string  `json:"role"`
	Content    content `json:"content"`
	Name       string  `json:"name"`
	Reasoning  string  `json:"reasoning_content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type completionRequest struct {
	options
	Prompt   prompts `json:"prompt"`
	Suffix   string  `json:"suffix"`
	Echo     bool    `json:"echo"`
	Logprobs *int    `json:"logprobs"`

	PromptLogprobs *int `json:"prompt_logprobs"`
}

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

func (o *options) request() (engine.Request, error) {
	d := sample.Default()
	r := engine.Request{
		N:         or(o.N, 1),
		MinTokens: or(o.MinTokens, 0),
		Stop:      o.Stop, StopTokens: o.StopTokens, KeepStop: o.KeepStop, IgnoreEnd: o.IgnoreEnd,
		Sampling: sample.Params{
			Temperature:       or(o.Temperature, d.Temperature),
			TopP:              or(o.TopP, d.TopP),
			TopK:              max(or(o.TopK, 0), 0),
			MinP:              or(o.MinP, 0),
			RepetitionPenalty: or(o.RepetitionPenalty, d.RepetitionPenalty),
			PresencePenalty:   or(o.PresencePenalty, 0),
			FrequencyPenalty:  or(o.FrequencyPenalty, 0),
			LogitBias:         o.LogitBias,
			Seed:              o.Seed,
		},
	}
	limit := o.MaxCompletionTokens
	if limit == nil {
		limit = o.MaxTokens
	}
	switch {
	case limit != nil && *limit < 1:
		return r, badRequest(o.limitName(), "%s is %d: want at least 1", o.limitName(), *limit)
	case o.N != nil && (*o.N < 1 || *o.N > engine.MaxSequences): // choices are allocated before the engine checks it
		return r, badRequest("n", "n is %d: want 1 to %d", *o.N, engine.MaxSequences)
	case o.TopK != nil && *o.TopK < -1:
		return r, badRequest("top_k", "top_k is %d: want a positive number, or 0 or -1 for all tokens", *o.TopK)
	case o.RepetitionPenalty != nil && *o.RepetitionPenalty <= 0:
		return r, badRequest("repetition_penalty", "repetition_penalty is %v: want more than 0", *o.RepetitionPenalty)
	case o.StreamOptions != nil && !o.Stream:
		return r, badRequest("stream_options", "stream_options is set and stream is not: set both or none")
	case o.BestOf != nil && *o.BestOf != r.N:
		return r, unsupported("best_of", "choosing the best of several texts")
	case len(o.BadWords) > 0:
		return r, unsupported("bad_words", "forbidding words")
	}
	if err := checkTurn(o.Priority, o.Salt); err != nil {
		return r, err
	}
	r.Priority, r.Salt = or(o.Priority, 0), or(o.Salt, "")
	r.MaxTokens = or(limit, 0)
	if o.TopP != nil && *o.TopP == 0 { // the sampler's zero means all tokens
		r.Sampling.TopK = 1
	}
	return r, nil
}

func (o *options) limitName() string {
	if o.MaxCompletionTokens != nil {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func (o *options) includeUsage() bool { return o.StreamOptions != nil && o.StreamOptions.IncludeUsage }

func (o *options) continuousUsage() bool { return o.includeUsage() && o.StreamOptions.Continuous }

func (c *chatRequest) request() (engine.Request, error) {
	r, err := c.options.request()
	if err != nil {
		return r, err
	}
	if c.TopLogprobs != nil && !c.Logprobs {
		return r, badRequest("top_logprobs", "top_logprobs is set and logprobs is not true: set both or none")
	}
	if err := c.refuse(); err != nil {
		return r, err
	}
	r.Sampling.Logprobs, r.Sampling.Top = c.Logprobs, or(c.TopLogprobs, 0)
	return r, scorePrompt(&r, c.PromptLogprobs, c.Stream)
}

func (c *completionRequest) request() (engine.Request, error) {
	o := c.options
	nothing := c.Echo && o.MaxTokens != nil && *o.MaxTokens == 0 // only the prompt is wanted
	if nothing {
		o.MaxTokens = nil
	}
	r, err := o.request()
	if err != nil {
		return r, err
	}
	if c.Suffix != "" {
		return r, unsupported("suffix", "filling a gap")
	}
	r.NoTokens = nothing
	if c.Logprobs != nil {
		if *c.Logprobs < 0 || *c.Logprobs > sample.MaxTop {
			return r, badRequest("logprobs", "logprobs is %d: want 0 to %d", *c.Logprobs, sample.MaxTop)
		}
		r.Sampling.Logprobs, r.Sampling.Top = true, *c.Logprobs
		r.ScorePrompt = c.Echo
	}
	return r, scorePrompt(&r, c.PromptLogprobs, c.Stream)
}

func scorePrompt(r *engine.Request, top *int, stream bool) error {
	if top == nil {
		return nil
	}
	if *top < 0 || *top > sample.MaxTop {
		return badRequest("prompt_logprobs", "prompt_logprobs is %d: want 0 to %d", *top, sample.MaxTop)
	}
	if stream {
		return badRequest("prompt_logprobs", "prompt_logprobs are not available in a stream: leave one of the two out")
	}
	r.ScorePrompt = true
	r.Sampling.Top = max(r.Sampling.Top, *top)
	return nil
}

func (p *prompt) turns() ([]chat.Message, error) {
	if len(p.Messages) == 0 {
		return nil, badRequest("messages", "messages is missing or empty: want at least one message")
	}
	turns := make([]chat.Message, len(p.Messages))
	for i, m := range p.Messages {
		text, err := p.pictured(&m)
		if err != nil {
			return nil, err
		}
		if m.Role == "" {
			return nil, badRequest("messages.role", "message %d has no role: want \"system\", \"user\", \"assistant\" or \"tool\"", i)
		}
		if m.Role == "developer" { // OpenAI's name, which templates of open models do not know
			m.Role = "system"
		}
		turns[i] = chat.Message{Role: m.Role, Content: text, Name: m.Name, Reasoning: m.Reasoning, ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			turns[i].ToolCalls = append(turns[i].ToolCalls, chat.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
	}
	return turns, nil
}

func checkTurn(priority *int, salt *string) error {
	switch {
	case priority != nil && (*priority < math.MinInt32 || *priority > math.MaxInt32):
		return badRequest("priority", "priority is %d: want %d to %d, lower is sooner", *priority, math.MinInt32, math.MaxInt32)
	case salt != nil && (*salt == "" || len(*salt) > maxSalt):
		return badRequest("cache_salt", "cache_salt has %d bytes: want 1 to %d", len(*salt), maxSalt)
	}
	return nil
}
