package vllmsim

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// responses answers /v1/responses: text in, text out, whole or as events. It keeps nothing.
func (s *Server) responses(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Input        json.RawMessage `json:"input"`
		Instructions string          `json:"instructions"`
		MaxOutput    *int            `json:"max_output_tokens"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	body.MaxTokens, body.N = body.MaxOutput, nil
	a, err := body.ask(s.cfg.Surface)
	if err == nil {
		a.prompts, err = responsePrompt(body.Input, body.Instructions)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	jobs, err := s.jobs(&a, ill)
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
	answer := &response{s: s, a: &a, job: jobs[0], id: s.id(r, "resp_"), created: time.Now().Unix()}
	if a.stream {
		answer.stream(w, r, ill)
		return
	}
	for p := range s.follow(r, jobs) {
		if p.err != nil {
			s.fail(w, p.err)
			return
		}
		answer.text, answer.tokens, answer.over = answer.job.shown(&a, p.tokens, p.over), len(p.tokens), p.over
	}
	if err := s.delay(r, ill, answer.tokens); err != nil || !answer.over {
		panic(http.ErrAbortHandler)
	}
	write(w, http.StatusOK, answer.body())
}

// responsePrompt reads a text or a list of messages.
func responsePrompt(raw json.RawMessage, instructions string) ([][]words.Token, error) {
	var messages []message
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		messages = []message{{Role: "user", Content: raw}}
	} else if err := json.Unmarshal(raw, &messages); err != nil {
		return nil, bad("input", "input must be a string or a list of messages")
	}
	if instructions != "" {
		content, err := json.Marshal(instructions)
		if err != nil {
			return nil, bad("instructions", "%v", err)
		}
		messages = append([]message{{Role: "system", Content: content}}, messages...)
	}
	prompt, err := conversation(messages)
	return [][]words.Token{prompt}, err
}

// response is one answer of the responses API.
type response struct {
	s       *Server
	a       *ask
	job     *job
	id      string
	created int64
	text    string
	tokens  int
	over    bool
	number  int // of the next event
}

func (p *response) status() string {
	switch {
	case !p.over:
		return "in_progress"
	case p.job.reason == "length":
		return "incomplete"
	}
	return "completed"
}

func (p *response) item() map[string]any {
	return map[string]any{"id": "msg_" + p.id, "type": "message", "role": "assistant", "status": p.status(), "content": []any{p.part()}}
}

func (p *response) part() map[string]any {
	return map[string]any{"type": "output_text", "text": p.text, "annotations": []any{}, "logprobs": nil}
}

func (p *response) body() map[string]any {
	b := map[string]any{
		"id": p.id, "object": "response", "created_at": p.created, "model": p.a.name, "status": p.status(), "output": []any{},
		"parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{}, "temperature": 1.0, "top_p": 1.0, "error": nil,
		"incomplete_details": nil, "instructions": nil, "metadata": nil, "usage": nil,
	}
	if p.over {
		u := p.s.engine.usage(p.a, []*job{p.job}, p.tokens)
		b["output"] = []any{p.item()}
		b["usage"] = map[string]any{
			"input_tokens": u["prompt_tokens"], "output_tokens": p.tokens, "total_tokens": u["total_tokens"],
			"input_tokens_details": u["prompt_tokens_details"], "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		}
		if p.status() == "incomplete" {
			b["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
		}
	}
	return b
}

// stream sends the events of one answer.
func (p *response) stream(w http.ResponseWriter, r *http.Request, ill injected) {
	ev := p.s.events(w, ill)
	for n := range p.s.follow(r, []*job{p.job}) {
		if n.err != nil {
			if !ev.started {
				p.s.fail(w, n.err)
				return
			}
			ev.stop(n.err)
			return
		}
		if p.news(ev, r, n) != nil {
			return
		}
	}
	if !p.over {
		return
	}
	_ = p.send(ev, "response.output_text.done", p.within(map[string]any{"text": p.text, "logprobs": []any{}}))
	_ = p.send(ev, "response.content_part.done", p.within(map[string]any{"part": p.part()}))
	_ = p.send(ev, "response.output_item.done", map[string]any{"output_index": 0, "item": p.item()})
	_ = p.send(ev, "response."+p.status(), map[string]any{"response": p.body()}) // the client has left
}

// send writes one numbered event.
func (p *response) send(ev *events, kind string, more map[string]any) error {
	more["type"], more["sequence_number"] = kind, p.number
	p.number++
	return ev.send(kind, more)
}

// within says which part of the answer an event speaks of.
func (p *response) within(more map[string]any) map[string]any {
	more["item_id"], more["output_index"], more["content_index"] = "msg_"+p.id, 0, 0
	return more
}

// news sends what is new.
func (p *response) news(ev *events, r *http.Request, n piece) error {
	if !ev.started {
		_ = p.send(ev, "response.created", map[string]any{"response": p.body()})
		_ = p.send(ev, "response.in_progress", map[string]any{"response": p.body()})
		item := p.item()
		item["content"] = []any{}
		_ = p.send(ev, "response.output_item.added", map[string]any{"output_index": 0, "item": item})
		_ = p.send(ev, "response.content_part.added", p.within(map[string]any{"part": p.part()}))
	}
	for p.tokens < len(n.tokens) {
		p.tokens++
		text := p.job.shown(p.a, n.tokens[:p.tokens], n.over && p.tokens == len(n.tokens))
		if delta := text[min(len(p.text), len(text)):]; delta != "" {
			p.text = text
			if err := p.send(ev, "response.output_text.delta", p.within(map[string]any{"delta": delta, "logprobs": []any{}})); err != nil {
				return err
			}
		}
		if err := ev.sent(r); err != nil {
			return err
		}
	}
	p.over = n.over
	return nil
}
