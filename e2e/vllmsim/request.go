package vllmsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ask is a request to generate, independent of the API.
type ask struct {
	// adapter is empty for the base model
	name, adapter string
	prompt        []Token
	given         bool // the prompt came as tokens
	max           int  // -1: as much as fits
	min           int
	ignoreEOS     bool
	stop          []string
	seed          *int64
	temperature   *float64
	stream        bool
	usage, steady bool    // usage at the end of a stream, and in every event
	logprobs      int     // alternatives; -1: none
	ids           bool    // the answer has the ids of tokens, too
	lora          []scale // of llama-server
	loraPath      string  // of SGLang
}

// Content is a text or parts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// Parts other than text count as a word each.
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

func conversation(messages []message) ([]Token, error) {
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
	return Encode(b.String()), nil
}

type sampling struct {
	Model         string          `json:"model"`
	MaxTokens     *int            `json:"max_tokens"`
	MinTokens     int             `json:"min_tokens"`
	IgnoreEOS     bool            `json:"ignore_eos"`
	Stop          json.RawMessage `json:"stop"`
	Seed          *int64          `json:"seed"`
	Temperature   *float64        `json:"temperature"`
	IDs           bool            `json:"return_token_ids"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	LoRA     []scale `json:"lora"`
	LoRAPath string  `json:"lora_path"`
}

func (p sampling) ask(of Surface) (ask, error) {
	if of == LlamaCpp {
		p.MinTokens, p.IDs = 0, false
	} else {
		p.LoRA = nil
	}
	if of != SGLang {
		p.LoRAPath = ""
	}
	a := ask{name: p.Model, max: -1, min: p.MinTokens, ignoreEOS: p.IgnoreEOS, seed: p.Seed,
		temperature: p.Temperature, stream: p.Stream, logprobs: -1, lora: p.LoRA, loraPath: p.LoRAPath, ids: p.IDs}
	if p.MaxTokens != nil {
		a.max = *p.MaxTokens
	}
	switch {
	case p.MaxTokens != nil && a.max < 0:
		return a, bad("max_tokens", "max_tokens must be at least 1, got %d.", a.max)
	case a.min < 0 || a.max >= 0 && a.min > a.max:
		return a, bad("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", a.max, a.min)
	case p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature <= 2):
		return a, bad("temperature", "temperature must be in [0, 2], got %g.", *p.Temperature)
	case p.StreamOptions != nil && !p.Stream:
		return a, bad("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if p.StreamOptions != nil {
		a.usage, a.steady = p.StreamOptions.IncludeUsage, p.StreamOptions.Continuous && (of == SGLang || of != LlamaCpp && p.StreamOptions.IncludeUsage)
	}
	var err error
	a.stop, err = stops(p.Stop)
	return a, err
}

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

// resolve returns the zero value for the model itself.
func (s *Server) resolve(a *ask) (Adapter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, plain := -1, a.name
	switch s.cfg.Surface {
	case LlamaCpp: // the name is ignored; adapters answer for every name
		i = s.scaled
		if len(a.lora) > 0 {
			var err error
			if i, err = s.loudest(a.lora); err != nil {
				return Adapter{}, err
			}
		}
	case RayServe: // an application has but one model
	case SGLang: // an adapter is named as model:adapter, or by lora_path; one that is not loaded is refused
		if base, tail, found := strings.Cut(a.name, ":"); found && slices.Contains(s.cfg.Names, base) {
			plain = tail
		}
		i = s.adapter(plain)
		if a.loraPath != "" {
			if i = s.adapter(a.loraPath); i < 0 {
				return Adapter{}, bad("lora_path", "LoRA adapter %s is not loaded", a.loraPath)
			}
		}
	case VLLM:
		if i = s.adapter(a.name); i < 0 && a.name != "" && !slices.Contains(s.cfg.Names, a.name) {
			return Adapter{}, &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The model `%s` does not exist.", a.name), param: "model"}
		}
	}
	if i < 0 {
		return Adapter{}, nil
	}
	return s.adapters[i], nil
}

// job computes the whole answer in advance.
func (s *Server) job(a *ask) (*job, error) {
	adapter, err := s.resolve(a)
	if err != nil {
		return nil, err
	}
	if a.adapter = adapter.Name; adapter.unapplied {
		a.adapter = ""
	}
	a.name = cmp.Or(a.name, s.cfg.Names[0])
	if len(a.prompt) == 0 {
		return nil, bad("prompt", "The decoder prompt cannot be empty")
	}
	room, wanted := s.cfg.MaxModelLen-len(a.prompt), max(1, a.max)
	if room < wanted {
		return nil, bad("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			s.cfg.MaxModelLen, wanted, len(a.prompt))
	}
	if a.max >= 0 {
		room = a.max
	}
	variant := ""
	if (a.temperature == nil || *a.temperature > 0) && a.seed != nil {
		variant = fmt.Sprint(*a.seed)
	} else if a.temperature == nil || *a.temperature > 0 {
		variant = "unseeded"
	}
	j := &job{natural: "stop", changed: make(chan struct{}, 1)}
	seed, made := s.seedOf(a, room, variant)
	out := Text(seed, a.adapter, a.least(room)+made)[made:]
	out, j.stopped = cutAtStop(out, a)
	if len(out) > room || a.ignoreEOS && j.stopped == "" {
		out, j.natural, j.stopped = out[:min(len(out), room)], "length", ""
	}
	j.seq = &Sequence{Adapter: a.adapter, Prompt: len(a.prompt), Tokens: slices.Concat(a.prompt, out)}
	if adapter.lost {
		j.spoil()
	}
	return j, nil
}

func (a *ask) least(room int) int {
	if a.ignoreEOS {
		return room
	}
	return a.min
}

// mostContinued bounds how much of an answer is found again at the end of a prompt.
const mostContinued = 1024

// seedOf returns the seed of the answer to a prompt. If a prompt of tokens ends with the first made tokens of the
// answer to its beginning, that answer continues.
func (s *Server) seedOf(a *ask, room int, variant string) (seed uint64, made int) {
	prompt := a.prompt
	of := func(prompt []Token) uint64 {
		return Seed(s.cfg.Model, a.adapter, Decode(prompt), variant)
	}
	if a.given {
		for made := min(len(prompt)-1, mostContinued); made > 0; made-- {
			begin, rest := prompt[:len(prompt)-made], prompt[len(prompt)-made:]
			seed := of(begin)
			if out := Text(seed, a.adapter, a.least(room)+made); len(out) > made && slices.Equal(out[:made], rest) {
				return seed, made
			}
		}
	}
	return of(prompt), 0
}

func cutAtStop(out []Token, a *ask) ([]Token, string) {
	if len(a.stop) == 0 {
		return out, ""
	}
	text := ""
	for i, t := range out {
		text += Piece(t)
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

// shown holds back what may be the beginning of a stop string.
func (j *job) shown(a *ask, tokens []Token, over bool) string {
	text := Decode(tokens)
	if len(a.stop) == 0 {
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
