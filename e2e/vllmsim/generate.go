package vllmsim

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// usage counts what a request cost.
func (e *engine) usage(a *ask, jobs []*job, generated int) map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	prompt, cached := 0, 0
	for i := 0; i < len(jobs); i += a.n { // choices share their prompt
		prompt += jobs[i].seq.Prompt
		cached += jobs[i].seq.Cached
	}
	return map[string]any{
		"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
		"prompt_tokens_details": map[string]any{"cached_tokens": cached},
	}
}

// format is what chat and text completions differ in.
type format struct {
	object, chunk, prefix string
	choice                func(index int, j *job, a *ask, tokens []words.Token, text, reason string) map[string]any
	// first is an event before the first token; nil: none.
	first func(index int, j *job, a *ask) map[string]any
	delta func(index int, j *job, a *ask, from, to int, text string) map[string]any
}

// complete generates everything and sends one body.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, a *ask, f format, ill injected) {
	jobs, err := s.jobs(a, ill)
	if err != nil {
		s.fail(w, err)
		return
	}
	cancel, err := s.submit(jobs)
	if err != nil {
		s.fail(w, err)
		return
	}
	defer cancel()
	head := map[string]any{"id": s.id(r, f.prefix), "created": time.Now().Unix(), "model": a.name}
	a.ids = a.ids && s.cfg.Surface == VLLM && !s.cfg.OldMetrics // which vLLM has since 0.10.2
	if a.stream {
		s.stream(w, r, a, f, ill, jobs, head)
		return
	}
	choices := make([]any, len(jobs))
	generated := 0
	for p := range s.follow(r, jobs) {
		if p.err != nil {
			s.fail(w, p.err)
			return
		}
		if !p.over {
			continue
		}
		j := jobs[p.index]
		generated += len(p.tokens)
		choice := f.choice(p.index, j, a, p.tokens, j.shown(a, p.tokens, true), j.reason)
		if a.ids {
			f.tell(j, head, choice, p.tokens)
		}
		choices[p.index] = choice
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if err := s.delay(r, ill, generated); err != nil {
		panic(http.ErrAbortHandler)
	}
	head["object"], head["choices"], head["usage"] = f.object, choices, s.engine.usage(a, jobs, generated)
	if s.cfg.Surface == LlamaCpp {
		head["timings"] = s.engine.timings(jobs[0])
	}
	write(w, http.StatusOK, head)
}

// delay is what a slow request takes longer without a stream, and what cuts it off.
func (s *Server) delay(r *http.Request, ill injected, tokens int) error {
	if ill.killed >= 0 && ill.killed <= tokens {
		s.crash("")
		return http.ErrAbortHandler
	}
	if ill.cut >= 0 && ill.cut <= tokens {
		return http.ErrAbortHandler
	}
	if ill.slow == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(tokens) * ill.slow):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// stream is an answer in pieces.
type stream struct {
	*events
	r         *http.Request
	a         *ask
	f         format
	jobs      []*job
	head      map[string]any
	generated int
	choices   []streamed
}

// streamed is what is out of one choice.
type streamed struct {
	opened bool
	told   bool // the ids of its prompt
	over   bool // its end was told
	tokens int
	text   string
}

// stream sends every token as it comes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a *ask, f format, ill injected, jobs []*job, head map[string]any) {
	st := &stream{events: s.events(w, ill), r: r, a: a, f: f, jobs: jobs, head: head, choices: make([]streamed, len(jobs))}
	head["object"] = f.chunk
	for p := range s.follow(r, jobs) {
		if p.err != nil && !st.started {
			s.fail(w, p.err)
			return
		}
		if p.err == nil {
			p.err = st.news(p)
		}
		if p.err != nil {
			st.stop(p.err)
			return
		}
	}
	if r.Context().Err() != nil {
		return
	}
	if a.usage {
		head["choices"], head["usage"] = []any{}, s.engine.usage(a, jobs, st.generated)
		if err := st.send("", head); err != nil {
			return
		}
	}
	_ = st.raw("data: [DONE]\n\n") // the client has left
}

// news sends what is new of one choice: one event a token, however many have come
// since the last look, and the end.
func (st *stream) news(p piece) error {
	j, c := st.jobs[p.index], &st.choices[p.index]
	if !c.opened {
		c.opened = true
		if first := st.f.first(p.index, j, st.a); first != nil {
			if st.a.ids {
				st.f.tell(j, st.head, first, nil)
				c.told = true
			}
			err := st.event(first)
			delete(st.head, "prompt_token_ids")
			if err != nil {
				return err
			}
		}
	}
	for c.tokens < len(p.tokens) {
		from := c.tokens
		c.tokens++
		st.generated++
		last := p.over && c.tokens == len(p.tokens)
		text := c.more(j.shown(st.a, p.tokens[:c.tokens], last))
		if text != "" || st.a.logprobs >= 0 || st.a.ids {
			choice := st.f.delta(p.index, j, st.a, from, c.tokens, text)
			if st.a.ids {
				st.ids(j, c, choice, p.tokens[from:c.tokens])
			}
			if last && st.a.ids { // vLLM tells the end with the last token
				choice["finish_reason"], choice["stop_reason"] = j.reason, stopReason(j)
			}
			if err := st.event(choice); err != nil {
				return err
			}
			c.over = last && st.a.ids
		}
		if err := st.sent(st.r); err != nil {
			return err
		}
	}
	if !p.over || c.over {
		return nil
	}
	last := st.f.delta(p.index, j, st.a, c.tokens, c.tokens, c.more(j.shown(st.a, p.tokens, true)))
	last["finish_reason"], last["stop_reason"] = j.reason, stopReason(j)
	if st.a.ids {
		st.ids(j, c, last, nil)
	}
	return st.event(last)
}

// more is what text has that is not out yet.
func (c *streamed) more(text string) string {
	rest := text[min(len(c.text), len(text)):]
	if len(text) > len(c.text) {
		c.text = text
	}
	return rest
}

// ids puts the ids of tokens into a choice, and those of the prompt into the first.
func (st *stream) ids(j *job, c *streamed, choice map[string]any, tokens []words.Token) {
	choice["token_ids"] = append([]words.Token{}, tokens...)
	if st.f.prefix == textPrefix {
		choice["prompt_token_ids"] = nil
		if !c.told {
			choice["prompt_token_ids"] = j.seq.Tokens[:j.seq.Prompt]
		}
	}
	c.told = true
}

// tell puts the ids of the prompt where the format has them, and those of tokens into the choice.
func (f format) tell(j *job, head, choice map[string]any, tokens []words.Token) {
	if tokens != nil {
		choice["token_ids"] = tokens
	}
	if f.prefix == textPrefix {
		choice["prompt_token_ids"] = j.seq.Tokens[:j.seq.Prompt]
		return
	}
	head["prompt_token_ids"] = j.seq.Tokens[:j.seq.Prompt]
}

func (st *stream) event(choice map[string]any) error {
	st.head["choices"] = []any{choice}
	if i, is := choice["index"].(int); is && st.a.steady { // of this choice
		st.head["usage"] = st.s.engine.usage(st.a, st.jobs[i:i+1], st.choices[i].tokens)
	}
	return st.send("", st.head)
}

func stopReason(j *job) any {
	if j.stopped == "" || j.reason != "stop" {
		return nil
	}
	return j.stopped
}

// chat answers /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Messages    []message `json:"messages"`
		MaxComplete *int      `json:"max_completion_tokens"`
		Logprobs    bool      `json:"logprobs"`
		TopLogprobs *int      `json:"top_logprobs"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if body.MaxComplete != nil {
		body.MaxTokens = body.MaxComplete
	}
	a, err := body.ask(s.cfg.Surface)
	if err == nil {
		var prompt []words.Token
		prompt, err = conversation(body.Messages)
		a.prompts = [][]words.Token{prompt}
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	if body.TopLogprobs != nil && (!body.Logprobs || *body.TopLogprobs < 0 || *body.TopLogprobs > 20) {
		s.fail(w, bad("top_logprobs", "top_logprobs must be between 0 and 20, and needs logprobs=true"))
		return
	}
	if body.Logprobs {
		a.logprobs = 0
		if body.TopLogprobs != nil {
			a.logprobs = *body.TopLogprobs
		}
	}
	s.complete(w, r, &a, chatFormat, ill)
}

var chatFormat = format{
	object: "chat.completion", chunk: "chat.completion.chunk", prefix: "chatcmpl-",
	choice: func(i int, j *job, a *ask, tokens []words.Token, text, reason string) map[string]any {
		return map[string]any{
			"index": i, "finish_reason": reason, "stop_reason": stopReason(j), "logprobs": chatLogprobs(a, tokens),
			"message": map[string]any{"role": "assistant", "content": text, "refusal": nil, "tool_calls": []any{}},
		}
	},
	first: func(i int, _ *job, _ *ask) map[string]any {
		return map[string]any{"index": i, "delta": map[string]any{"role": "assistant", "content": ""}, "finish_reason": nil, "logprobs": nil}
	},
	delta: func(i int, j *job, a *ask, from, to int, text string) map[string]any {
		return map[string]any{"index": i, "delta": map[string]any{"content": text}, "finish_reason": nil, "logprobs": chatLogprobs(a, j.output()[from:to])}
	},
}

// output is all that a job will ever say. Only what has been generated may be shown.
func (j *job) output() []words.Token { return j.seq.Tokens[j.seq.Prompt:] }

// completions answers /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Prompt   json.RawMessage `json:"prompt"`
		Logprobs *int            `json:"logprobs"`
		Echo     bool            `json:"echo"`
		Suffix   *string         `json:"suffix"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if body.MaxTokens == nil {
		body.MaxTokens = new(int)
		*body.MaxTokens = 16 // OpenAI's default for this endpoint, and vLLM's
	}
	a, err := body.ask(s.cfg.Surface)
	if err == nil {
		a.prompts, err = prompts(body.Prompt)
		a.given = len(body.Prompt) > 1 && body.Prompt[0] == '[' && !bytes.ContainsRune(body.Prompt, '"')
	}
	switch {
	case err != nil:
	case body.Suffix != nil && *body.Suffix != "":
		err = bad("suffix", "suffix is not currently supported")
	case body.Logprobs != nil && (*body.Logprobs < 0 || *body.Logprobs > 20):
		err = bad("logprobs", "logprobs must be between 0 and 20, got %d", *body.Logprobs)
	case body.Logprobs != nil:
		a.logprobs = *body.Logprobs
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	a.echo = body.Echo
	s.complete(w, r, &a, textFormat, ill)
}

// prompts reads a text, texts, tokens, or lists of tokens.
func prompts(raw json.RawMessage) ([][]words.Token, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return [][]words.Token{words.Encode(text)}, nil
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil && len(texts) > 0 {
		all := make([][]words.Token, len(texts))
		for i, t := range texts {
			all[i] = words.Encode(t)
		}
		return all, nil
	}
	var one []words.Token
	if json.Unmarshal(raw, &one) == nil && len(one) > 0 {
		return [][]words.Token{one}, nil
	}
	var many [][]words.Token
	if json.Unmarshal(raw, &many) == nil && len(many) > 0 && len(many) <= 1024 {
		return many, nil
	}
	return nil, bad("prompt", "prompt must be a string, a list of strings, a list of tokens, or a list of lists of tokens")
}

const textPrefix = "cmpl-"

var textFormat = format{
	object: "text_completion", chunk: "text_completion", prefix: textPrefix,
	choice: func(i int, j *job, a *ask, tokens []words.Token, text, reason string) map[string]any {
		if a.echo {
			text = words.Decode(j.seq.Tokens[:j.seq.Prompt]) + text
			tokens = j.seq.Tokens[:j.seq.Prompt+len(tokens)]
		}
		return map[string]any{"index": i, "text": text, "finish_reason": reason, "stop_reason": stopReason(j), "logprobs": textLogprobs(a, tokens, 0)}
	},
	first: func(i int, j *job, a *ask) map[string]any {
		if !a.echo {
			return nil
		}
		return map[string]any{"index": i, "text": words.Decode(j.seq.Tokens[:j.seq.Prompt]), "finish_reason": nil, "stop_reason": nil, "logprobs": nil}
	},
	delta: func(i int, j *job, a *ask, from, to int, text string) map[string]any {
		offset := len(words.Decode(j.output()[:from]))
		return map[string]any{"index": i, "text": text, "finish_reason": nil, "stop_reason": nil, "logprobs": textLogprobs(a, j.output()[from:to], offset)}
	},
}
