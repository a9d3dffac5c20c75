package vllmsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/e2e/vllmsim/batch"
	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// ask is what a client wants generated, whatever API it came by.
type ask struct {
	// name is the model as the client called it; adapter is empty for the base model.
	name, adapter string
	prompts       [][]words.Token
	n             int
	max           int // -1: as much as fits
	min           int
	ignoreEOS     bool
	stop          []string
	includeStop   bool
	seed          *int64
	temperature   *float64
	stream        bool
	usage, steady bool // usage at the end of a stream, and in every event
	logprobs      int  // -1: none; else how many alternatives
	echo          bool
	ids           bool    // the answer has the ids of tokens, too
	given         bool    // the prompts came as tokens
	lora          []scale // of llama-server: the adapters of this request
	loraPath      string  // of SGLang: the adapter of this request
	// schema, when json is true, is what the answer must look like; nil: any object.
	json   bool
	schema map[string]any
}

// message is one turn of a conversation. Its content is a text or parts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// text joins the texts of a content. Other parts count as a word each.
func (m message) text() (string, error) {
	if len(m.Content) == 0 || bytes.Equal(m.Content, []byte("null")) {
		return "", nil
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", bad("messages", "the content of a message must be a string or an array of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Text == "" {
			p.Text = "<" + p.Type + ">"
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// conversation is the prompt of messages.
func conversation(messages []message) ([]words.Token, error) {
	if len(messages) == 0 {
		return nil, bad("messages", "the list of messages is empty")
	}
	var b strings.Builder
	for i, m := range messages {
		text, err := m.text()
		if err != nil {
			return nil, err
		}
		if m.Role == "" {
			return nil, bad("messages", "messages[%d] has no role", i)
		}
		fmt.Fprintf(&b, "%s\n%s\n", m.Role, text)
	}
	b.WriteString("assistant\n")
	return words.Encode(b.String()), nil
}

// sampling are the fields that chat and text completions share.
type sampling struct {
	Model         string          `json:"model"`
	MaxTokens     *int            `json:"max_tokens"`
	MinTokens     int             `json:"min_tokens"`
	IgnoreEOS     bool            `json:"ignore_eos"`
	Stop          json.RawMessage `json:"stop"`
	IncludeStop   bool            `json:"include_stop_str_in_output"`
	Seed          *int64          `json:"seed"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	IDs           bool            `json:"return_token_ids"`
	N             *int            `json:"n"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	LoRA           []scale `json:"lora"`
	LoRAPath       string  `json:"lora_path"`
	ResponseFormat *struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema map[string]any `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// ask checks the fields that the server knows and makes them into an ask without prompts.
func (p sampling) ask(of Surface) (ask, error) {
	if of == LlamaCpp {
		p.MinTokens, p.IDs = 0, false
	} else {
		p.LoRA = nil
	}
	if of == LlamaCpp || of == SGLang {
		p.IncludeStop = false
	}
	if of != SGLang {
		p.LoRAPath = ""
	}
	a := ask{name: p.Model, n: 1, max: -1, min: p.MinTokens, ignoreEOS: p.IgnoreEOS, includeStop: p.IncludeStop, seed: p.Seed,
		temperature: p.Temperature, stream: p.Stream, logprobs: -1, lora: p.LoRA, loraPath: p.LoRAPath, ids: p.IDs}
	if p.N != nil {
		a.n = *p.N
	}
	if p.MaxTokens != nil {
		a.max = *p.MaxTokens
	}
	switch {
	case a.n < 1 || a.n > 128:
		return a, bad("n", "n must be between 1 and 128, got %d.", a.n)
	case p.MaxTokens != nil && a.max < 0:
		return a, bad("max_tokens", "max_tokens must be at least 1, got %d.", a.max)
	case a.min < 0 || a.max >= 0 && a.min > a.max:
		return a, bad("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", a.max, a.min)
	case p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature <= 2):
		return a, bad("temperature", "temperature must be in [0, 2], got %g.", *p.Temperature)
	case p.TopP != nil && !(*p.TopP > 0 && *p.TopP <= 1):
		return a, bad("top_p", "top_p must be in (0, 1], got %g.", *p.TopP)
	case p.StreamOptions != nil && !p.Stream:
		return a, bad("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if p.StreamOptions != nil {
		a.usage, a.steady = p.StreamOptions.IncludeUsage, p.StreamOptions.Continuous && (of == SGLang || of != LlamaCpp && p.StreamOptions.IncludeUsage)
	}
	if f := p.ResponseFormat; f != nil && f.Type != "" && f.Type != "text" {
		if f.Type != "json_object" && f.Type != "json_schema" {
			return a, bad("response_format", "response_format.type: want text, json_object or json_schema, got %q", f.Type)
		}
		a.json, a.schema = true, f.JSONSchema.Schema
	}
	var err error
	a.stop, err = stops(p.Stop)
	return a, err
}

// stops reads a string or a list of them.
func stops(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err != nil {
		return nil, bad("stop", "stop must be a string or a list of strings")
	}
	return slices.DeleteFunc(many, func(s string) bool { return s == "" }), nil
}

// resolve finds what a model's name means. Empty is the base model.
func (s *Server) resolve(name string) (adapter Adapter, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Surface == LlamaCpp { // it does not look at the name either; adapters speak for everybody
		if s.scaled > 0 {
			return s.adapters[s.scaled-1], nil
		}
		return Adapter{}, nil
	}
	if name == "" || slices.Contains(s.cfg.Names, name) {
		return Adapter{}, nil
	}
	// SGLang names an adapter as model:adapter, and its own way by lora_path, of which it refuses what is not loaded.
	plain := name
	if base, tail, found := strings.Cut(name, ":"); found && s.cfg.Surface == SGLang && slices.Contains(s.cfg.Names, base) {
		plain = tail
	}
	if i := slices.IndexFunc(s.adapters, func(a Adapter) bool { return a.Name == plain }); i >= 0 {
		return s.adapters[i], nil
	}
	if s.cfg.Surface == SGLang || s.cfg.Surface == RayServe {
		return Adapter{}, nil // it does not look at the name; an application on Ray Serve has but one model
	}
	return Adapter{}, &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The model `%s` does not exist.", name), param: "model"}
}

// adapterAt is the adapter that a request on SGLang names by "lora_path".
func (s *Server) adapterAt(name string) (Adapter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.adapters, func(a Adapter) bool { return a.Name == name })
	if i < 0 {
		return Adapter{}, bad("lora_path", "LoRA adapter %s is not loaded", name)
	}
	return s.adapters[i], nil
}

// jobs makes a job of every choice of every prompt.
func (s *Server) jobs(a *ask, ill injected) ([]*job, error) {
	adapter, err := s.resolve(a.name)
	if err != nil {
		return nil, err
	}
	if len(a.lora) > 0 && s.cfg.Surface == LlamaCpp {
		if adapter, err = s.scaledAdapter(a.lora); err != nil {
			return nil, err
		}
	}
	if a.loraPath != "" {
		if adapter, err = s.adapterAt(a.loraPath); err != nil {
			return nil, err
		}
	}
	if a.adapter = adapter.Name; adapter.unapplied {
		a.adapter = ""
	}
	ill.garbage = ill.garbage || adapter.lost
	if a.name == "" {
		a.name = s.cfg.Names[0]
	}
	var all []*job
	for _, p := range a.prompts {
		room := s.cfg.MaxModelLen - len(p)
		if len(p) == 0 {
			return nil, bad("prompt", "The decoder prompt cannot be empty")
		}
		wanted := a.max
		if wanted < 0 {
			wanted = 1
		}
		if room < wanted {
			return nil, bad("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
				s.cfg.MaxModelLen, wanted, len(p))
		}
		if a.max >= 0 {
			room = a.max
		}
		for choice := range a.n {
			all = append(all, s.job(a, p, choice, room, ill))
		}
	}
	return all, nil
}

// job writes the whole answer in advance: it depends on nothing but what is asked.
func (s *Server) job(a *ask, prompt []words.Token, choice, room int, ill injected) *job {
	variant := ""
	if a.temperature == nil || *a.temperature > 0 {
		seed := s.cfg.Seed
		if a.seed != nil {
			seed = *a.seed
		}
		variant = fmt.Sprintf("%d/%d", seed, choice)
	}
	j := &job{natural: "stop", changed: make(chan struct{}, 1), n: a.n, max: room}
	seed, made := s.seedOf(a, prompt, room, variant)
	if ill.garbage {
		made = 0
	}
	var out []words.Token
	switch {
	case ill.garbage:
		out = words.Garbage(seed, room)
	case a.json:
		out = words.Encode(instance(a.schema, seed))
	default:
		out = words.Text(seed, a.adapter, a.least(room)+made)
	}
	out = out[made:]
	out, j.stopped = cutAtStop(out, a)
	if len(out) > room || ill.garbage || a.ignoreEOS && j.stopped == "" {
		out, j.natural, j.stopped = out[:min(len(out), room)], "length", ""
	}
	j.seq = &batch.Sequence{Adapter: a.adapter, Prompt: len(prompt), Tokens: slices.Concat(prompt, out)}
	return j
}

// least is how many tokens an answer has at least.
func (a *ask) least(room int) int {
	if a.ignoreEOS {
		return room
	}
	return a.min
}

// mostContinued bounds how much of an answer is found again at the end of a prompt.
const mostContinued = 1024

// seedOf is the seed of the answer to a prompt. A model does not know which of its tokens are a prompt's: where one that was given as tokens ends with the
// first tokens of what is said to its beginning, made of them, that goes on.
func (s *Server) seedOf(a *ask, prompt []words.Token, room int, variant string) (seed uint64, made int) {
	of := func(prompt []words.Token) uint64 {
		return words.Seed(s.cfg.Model, a.adapter, words.Decode(prompt), variant)
	}
	if a.given && !a.json {
		for made := min(len(prompt)-1, mostContinued); made > 0; made-- {
			begin, rest := prompt[:len(prompt)-made], prompt[len(prompt)-made:]
			seed := of(begin)
			if out := words.Text(seed, a.adapter, a.least(room)+made); len(out) > made && slices.Equal(out[:made], rest) {
				return seed, made
			}
		}
	}
	return of(prompt), 0
}

// cutAtStop ends a text at the first stop string after the least number of tokens.
func cutAtStop(out []words.Token, a *ask) ([]words.Token, string) {
	if len(a.stop) == 0 {
		return out, ""
	}
	text := ""
	for i, t := range out {
		text += words.Piece(t)
		if i < a.min {
			continue
		}
		for _, stop := range a.stop {
			if at := strings.Index(text, stop); at >= 0 {
				return out[:i+1], stop
			}
		}
	}
	return out, ""
}

// shown is the text of tokens without the stop string that ends it. While a stop
// string may still be coming, its beginning is held back.
func (j *job) shown(a *ask, tokens []words.Token, over bool) string {
	text := words.Decode(tokens)
	if len(a.stop) == 0 || a.includeStop {
		return text
	}
	if over {
		if at := strings.Index(text, j.stopped); j.stopped != "" && at >= 0 {
			return text[:at]
		}
		return text
	}
	hold := 0
	for _, stop := range a.stop {
		hold = max(hold, len(stop)-1)
	}
	cut := max(0, len(text)-hold)
	for cut > 0 && cut < len(text) && text[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return text[:cut]
}
