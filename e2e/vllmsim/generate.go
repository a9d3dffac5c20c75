package vllmsim

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// form is how an API says an answer.
type form struct {
	prefix string // of the id
	fail   func(*Server, http.ResponseWriter, error)
	// begin, which may be nil, comes before the first token; delta is one token's, the last with the reason of the
	// end; finish comes after that.
	begin  func(*reply) error
	delta  func(p *reply, text string, token []Token, last bool) error
	finish func(*reply)
	whole  func(*reply) any // without a stream
}

type reply struct {
	*events
	s       *Server
	a       *ask
	job     *job
	id      string
	created int64
	text    string // sent so far
	told    bool   // the ids of the prompt were sent
	number  int    // of the next event of the responses API
}

// Streams have one event a token, however many have come since the last look.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, a *ask, err error, f form, ill injected) {
	var j *job
	if err == nil {
		j, err = s.job(a)
	}
	if err == nil {
		err = s.engine.submit(j)
	}
	if err != nil {
		f.fail(s, w, err)
		return
	}
	defer s.engine.cancel(j)
	a.ids = a.ids && s.cfg.Surface == VLLM && !s.cfg.OldMetrics // vLLM has them since 0.10.2
	p := &reply{events: s.events(w, ill), s: s, a: a, job: j, id: s.id(r, f.prefix), created: time.Now().Unix()}
	for have, over := 0, false; !over; {
		var tokens []Token
		tokens, over, err = s.engine.progress(r.Context(), j, have)
		switch {
		case r.Context().Err() != nil:
			panic(http.ErrAbortHandler) // the client has left
		case err != nil && !p.started:
			f.fail(s, w, err)
			return
		case err == nil && a.stream:
			err = p.stream(r, f, tokens, have, over)
		}
		if err != nil {
			p.stop(err)
			return
		}
		have = len(tokens)
		p.text = j.shown(a, tokens, over)
	}
	if a.stream {
		f.finish(p)
		return
	}
	if err := p.delay(r, j.seq.Generated); err != nil {
		panic(http.ErrAbortHandler)
	}
	write(w, http.StatusOK, f.whole(p))
}

func (p *reply) stream(r *http.Request, f form, tokens []Token, have int, over bool) error {
	if !p.started && f.begin != nil {
		if err := f.begin(p); err != nil {
			return err
		}
	}
	if over && have == len(tokens) { // it ended without another token
		return f.delta(p, p.grow(p.job.shown(p.a, tokens, true)), nil, true)
	}
	for n := have + 1; n <= len(tokens); n++ {
		last := over && n == len(tokens)
		text := p.grow(p.job.shown(p.a, tokens[:n], last))
		if text != "" || p.a.ids || last {
			if err := f.delta(p, text, tokens[n-1:n], last); err != nil {
				return err
			}
		}
		if err := p.tokenSent(r); err != nil {
			return err
		}
	}
	return nil
}

// grow returns the part of text that is new.
func (p *reply) grow(text string) string {
	rest := text[min(len(p.text), len(text)):]
	if len(text) > len(p.text) {
		p.text = text
	}
	return rest
}

// delay makes an answer without a stream slow. It returns an error if a fault or the client cuts it off.
func (e *events) delay(r *http.Request, tokens int) error {
	if e.a.killed >= 0 && e.a.killed <= tokens {
		e.s.crash()
		return http.ErrAbortHandler
	}
	if e.a.cut >= 0 && e.a.cut <= tokens {
		return http.ErrAbortHandler
	}
	select {
	case <-time.After(time.Duration(tokens) * e.a.slow):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

func (p *reply) usage(n int) object {
	p.s.engine.mu.Lock()
	defer p.s.engine.mu.Unlock()
	seq := p.job.seq
	return object{"prompt_tokens": seq.Prompt, "completion_tokens": n, "total_tokens": seq.Prompt + n, "prompt_tokens_details": object{"cached_tokens": seq.Cached}}
}

func (p *reply) head(kind string, choice ...any) object {
	return object{"id": p.id, "created": p.created, "model": p.a.name, "object": kind, "choices": choice}
}

func (p *reply) finished(choice object) object {
	choice["finish_reason"], choice["stop_reason"] = p.job.reason, p.job.stopReason()
	return choice
}

func (j *job) stopReason() any {
	if j.stopped == "" || j.reason != "stop" {
		return nil
	}
	return j.stopped
}

func (p *reply) promptIDs() []Token { return p.job.seq.Tokens[:p.job.seq.Prompt] }
func (p *reply) output() []Token {
	return p.job.seq.Tokens[p.job.seq.Prompt:][:p.job.seq.Generated]
}

func (p *reply) event(chunk object) error {
	if p.a.steady {
		chunk["usage"] = p.usage(p.tokens + 1)
	}
	return p.send("", chunk)
}

func finishOpenAI(kind string) func(*reply) {
	return func(p *reply) {
		if p.a.usage {
			chunk := p.head(kind)
			chunk["choices"], chunk["usage"] = []any{}, p.usage(p.tokens)
			if p.send("", chunk) != nil {
				return
			}
		}
		_ = p.raw("data: [DONE]\n\n") // the client has left
	}
}

func (p *reply) completed(kind string, choice object) object {
	body := p.head(kind, p.finished(choice))
	body["usage"] = p.usage(p.job.seq.Generated)
	if p.s.cfg.Surface == LlamaCpp {
		body["timings"] = p.timings()
	}
	if p.a.ids {
		choice["token_ids"] = p.output()
	}
	return body
}

var chatForm = form{
	prefix: "chatcmpl-", fail: (*Server).fail,
	begin: func(p *reply) error {
		chunk := p.head("chat.completion.chunk", object{"index": 0, "delta": object{"role": "assistant", "content": ""}, "finish_reason": nil, "logprobs": nil})
		if p.a.ids {
			chunk["prompt_token_ids"] = p.promptIDs()
		}
		return p.send("", chunk)
	},
	delta: func(p *reply, text string, token []Token, last bool) error {
		choice := object{"index": 0, "delta": object{"content": text}, "finish_reason": nil, "logprobs": chatLogprobs(p.a, token)}
		if last {
			p.finished(choice)
		}
		if p.a.ids {
			choice["token_ids"] = append([]Token{}, token...)
		}
		return p.event(p.head("chat.completion.chunk", choice))
	},
	finish: finishOpenAI("chat.completion.chunk"),
	whole: func(p *reply) any {
		body := p.completed("chat.completion", object{"index": 0, "logprobs": chatLogprobs(p.a, p.output()),
			"message": object{"role": "assistant", "content": p.text, "refusal": nil, "tool_calls": []any{}}})
		if p.a.ids {
			body["prompt_token_ids"] = p.promptIDs()
		}
		return body
	},
}

var textForm = form{
	prefix: "cmpl-", fail: (*Server).fail,
	delta: func(p *reply, text string, token []Token, last bool) error {
		choice := object{"index": 0, "text": text, "finish_reason": nil, "stop_reason": nil, "logprobs": textLogprobs(p.a, token)}
		if last {
			p.finished(choice)
		}
		if p.a.ids {
			choice["token_ids"], choice["prompt_token_ids"] = append([]Token{}, token...), nil
			if !p.told {
				choice["prompt_token_ids"], p.told = p.promptIDs(), true
			}
		}
		return p.event(p.head("text_completion", choice))
	},
	finish: finishOpenAI("text_completion"),
	whole: func(p *reply) any {
		choice := object{"index": 0, "text": p.text, "logprobs": textLogprobs(p.a, p.output())}
		if p.a.ids {
			choice["prompt_token_ids"] = p.promptIDs()
		}
		return p.completed("text_completion", choice)
	},
}

func chat(s *Server, w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Messages    []message `json:"messages"`
		MaxComplete *int      `json:"max_completion_tokens"`
		Logprobs    bool      `json:"logprobs"`
		TopLogprobs int       `json:"top_logprobs"`
	}
	var a ask
	err := read(r, &body)
	if err == nil {
		if body.MaxComplete != nil {
			body.MaxTokens = body.MaxComplete
		}
		a, err = body.ask(s.cfg.Surface)
	}
	if err == nil {
		a.prompt, err = conversation(body.Messages)
	}
	if body.TopLogprobs < 0 || body.TopLogprobs > 20 {
		err = bad("top_logprobs", "top_logprobs must be between 0 and 20")
	} else if body.Logprobs {
		a.logprobs = body.TopLogprobs
	}
	s.generate(w, r, &a, err, chatForm, ill)
}

func completions(s *Server, w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Prompt   json.RawMessage `json:"prompt"`
		Logprobs *int            `json:"logprobs"`
	}
	var a ask
	err := read(r, &body)
	if err == nil {
		if body.MaxTokens == nil {
			body.MaxTokens = new(16) // OpenAI's default for this endpoint, and vLLM's
		}
		a, err = body.ask(s.cfg.Surface)
	}
	if err == nil {
		a.prompt, a.given, err = promptOf(body.Prompt)
	}
	if body.Logprobs != nil {
		if a.logprobs = *body.Logprobs; a.logprobs < 0 || a.logprobs > 20 {
			err = bad("logprobs", "logprobs must be between 0 and 20, got %d", a.logprobs)
		}
	}
	s.generate(w, r, &a, err, textForm, ill)
}

func promptOf(raw json.RawMessage) (tokens []Token, given bool, err error) {
	var text string
	if bytes.HasPrefix(raw, []byte(`"`)) && json.Unmarshal(raw, &text) == nil {
		return Encode(text), false, nil
	}
	if json.Unmarshal(raw, &tokens) == nil && len(tokens) > 0 {
		return tokens, true, nil
	}
	return nil, false, bad("prompt", "prompt must be a string or a list of tokens")
}

var llamaForm = form{
	fail: (*Server).fail,
	delta: func(p *reply, text string, _ []Token, _ bool) error {
		return p.send("", object{"index": 0, "content": text, "stop": false})
	},
	finish: func(p *reply) { _ = p.send("", llamaEnd(p, "")) }, // the client has left
	whole:  func(p *reply) any { return llamaEnd(p, p.text) },
}

func llamaEnd(p *reply, content string) object {
	return object{"index": 0, "content": content, "stop": true, "model": p.a.name, "tokens_predicted": p.job.seq.Generated, "tokens_evaluated": p.job.seq.Prompt,
		"stop_type": map[string]string{"stop": "eos", "length": "limit", "abort": "none"}[p.job.reason], "stopping_word": p.job.stopped, "timings": p.timings()}
}

func (p *reply) timings() object {
	millis := func(from, to time.Time) float64 { return max(0, float64(to.Sub(from).Microseconds())/1000) }
	j := p.job
	p.s.engine.mu.Lock()
	defer p.s.engine.mu.Unlock()
	return object{
		"prompt_n": j.seq.Prompt - j.seq.Cached, "prompt_ms": millis(j.begun, j.first),
		"predicted_n": j.seq.Generated, "predicted_ms": millis(j.first, j.last),
	}
}

func llamaCompletion(s *Server, w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Prompt      json.RawMessage `json:"prompt"`
		Max         *int            `json:"n_predict"`
		Stream      bool            `json:"stream"`
		Temperature *float64        `json:"temperature"`
		Stop        json.RawMessage `json:"stop"`
	}
	var a ask
	err := read(r, &body)
	if err == nil {
		if body.Max != nil && *body.Max < 0 {
			body.Max = nil
		}
		a, err = sampling{MaxTokens: body.Max, Temperature: body.Temperature, Stop: body.Stop, Stream: body.Stream}.ask(s.cfg.Surface)
	}
	if err == nil {
		a.prompt, a.given, err = promptOf(body.Prompt)
	}
	s.generate(w, r, &a, err, llamaForm, ill)
}
