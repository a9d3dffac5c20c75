package vllmsim

import (
	"encoding/json"
	"net/http"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// messages answers /v1/messages, Anthropic's API.
func (s *Server) messages(w http.ResponseWriter, r *http.Request, ill injected) {
	a, err := s.anthropic(r)
	var jobs []*job
	if err == nil {
		jobs, err = s.jobs(&a, ill)
	}
	var cancel func()
	if err == nil {
		cancel, err = s.submit(jobs)
	}
	if err != nil {
		s.anthropicFailure(w, err)
		return
	}
	defer cancel()
	reply := &reply{a: &a, job: jobs[0], id: s.id(r, "msg_"), ev: s.events(w, ill)}
	for p := range s.follow(r, jobs) {
		if p.err != nil && !reply.ev.started {
			s.anthropicFailure(w, p.err)
			return
		}
		if p.err != nil || reply.news(r, p) != nil {
			return // cut: a stream of this API that ends without message_stop has failed
		}
	}
	switch {
	case !reply.over:
		panic(http.ErrAbortHandler) // the client has left
	case a.stream:
		reply.close()
	default:
		if err := s.delay(r, ill, reply.tokens); err != nil {
			panic(http.ErrAbortHandler)
		}
		write(w, http.StatusOK, reply.body([]any{map[string]any{"type": "text", "text": reply.text}}, reply.reason()))
	}
}

// reply is one answer of the messages API.
type reply struct {
	a      *ask
	job    *job
	id     string
	ev     *events
	text   string
	tokens int
	over   bool
}

func (p *reply) body(content []any, reason any) map[string]any {
	return map[string]any{"id": p.id, "type": "message", "role": "assistant", "model": p.a.name, "content": content,
		"stop_reason": reason, "stop_sequence": stopReason(p.job), "usage": map[string]any{"input_tokens": p.job.seq.Prompt, "output_tokens": p.tokens}}
}

// reason is why it ended, in this API's words.
func (p *reply) reason() string {
	switch {
	case stopReason(p.job) != nil:
		return "stop_sequence"
	case p.job.reason == "length":
		return "max_tokens"
	}
	return "end_turn"
}

// news takes in what is new, and sends it where the answer is a stream.
func (p *reply) news(r *http.Request, n piece) error {
	if p.a.stream && !p.ev.started {
		_ = p.ev.send("message_start", map[string]any{"type": "message_start", "message": p.body([]any{}, nil)})
		_ = p.ev.send("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
	}
	for p.tokens < len(n.tokens) {
		p.tokens++
		text := p.job.shown(p.a, n.tokens[:p.tokens], n.over && p.tokens == len(n.tokens))
		delta := text[min(len(p.text), len(text)):]
		if delta != "" {
			p.text = text
		}
		if !p.a.stream {
			continue
		}
		if err := p.ev.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": delta}}); err != nil {
			return err
		}
		if err := p.ev.sent(r); err != nil {
			return err
		}
	}
	p.over = n.over
	return nil
}

// close sends the end of a stream.
func (p *reply) close() {
	_ = p.ev.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	_ = p.ev.send("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": p.reason(), "stop_sequence": stopReason(p.job)}, "usage": map[string]any{"output_tokens": p.tokens}})
	_ = p.ev.send("message_stop", map[string]any{"type": "message_stop"}) // the client has left
}

// anthropic reads a request for messages.
func (s *Server) anthropic(r *http.Request) (ask, error) {
	var body struct {
		sampling
		Messages []message       `json:"messages"`
		System   json.RawMessage `json:"system"`
		Stops    []string        `json:"stop_sequences"`
	}
	if err := read(r, &body); err != nil {
		return ask{}, err
	}
	a, err := body.ask(s.cfg.Surface)
	if err != nil {
		return a, err
	}
	a.stop, a.lora = body.Stops, nil // which llama.cpp drops from such a request
	if len(body.System) > 0 {
		body.Messages = append([]message{{Role: "system", Content: body.System}}, body.Messages...)
	}
	prompt, err := conversation(body.Messages)
	a.prompts = [][]words.Token{prompt}
	return a, err
}

// countTokens answers /v1/messages/count_tokens.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	a, err := s.anthropic(r)
	if err != nil {
		s.anthropicFailure(w, err)
		return
	}
	write(w, http.StatusOK, map[string]any{"input_tokens": len(a.prompts[0])})
}

func (s *Server) anthropicFailure(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f == nil {
		panic(http.ErrAbortHandler)
	}
	kind := map[int]string{400: "invalid_request_error", 404: "not_found_error", 503: "overloaded_error"}[f.status]
	if kind == "" {
		kind = "api_error"
	}
	write(w, f.status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": f.message}})
}
