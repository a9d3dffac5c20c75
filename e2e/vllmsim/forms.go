package vllmsim

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// responsesForm is OpenAI's responses API.
var responsesForm = form{
	prefix: "resp_", fail: (*Server).fail,
	begin: func(p *reply) error {
		_ = p.numbered("response.created", object{"response": p.response(false)})
		_ = p.numbered("response.in_progress", object{"response": p.response(false)})
		item := p.item(false)
		item["content"] = []any{}
		_ = p.numbered("response.output_item.added", object{"output_index": 0, "item": item})
		return p.numbered("response.content_part.added", p.within(object{"part": p.part()}))
	},
	delta: func(p *reply, text string, _ []Token, _ bool) error {
		if text == "" {
			return nil
		}
		return p.numbered("response.output_text.delta", p.within(object{"delta": text, "logprobs": []any{}}))
	},
	finish: func(p *reply) {
		_ = p.numbered("response.output_text.done", p.within(object{"text": p.text, "logprobs": []any{}}))
		_ = p.numbered("response.content_part.done", p.within(object{"part": p.part()}))
		_ = p.numbered("response.output_item.done", object{"output_index": 0, "item": p.item(true)})
		_ = p.numbered("response."+p.status(true), object{"response": p.response(true)}) // the client has left
	},
	whole: func(p *reply) any { return p.response(true) },
}

func responses(s *Server, w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Input        json.RawMessage `json:"input"`
		Instructions json.RawMessage `json:"instructions"`
		MaxOutput    *int            `json:"max_output_tokens"`
	}
	var a ask
	err := read(r, &body)
	if err == nil {
		body.MaxTokens = body.MaxOutput
		a, err = body.ask(s.cfg.Surface)
	}
	var list []message
	if err == nil && len(body.Instructions) > 0 {
		list = append(list, message{Role: "system", Content: body.Instructions})
	}
	if err == nil {
		var said []message
		if len(body.Input) > 0 && body.Input[0] == '"' {
			said = []message{{Role: "user", Content: body.Input}}
		} else if json.Unmarshal(body.Input, &said) != nil {
			err = bad("input", "input must be a string or a list of messages")
		}
		list = append(list, said...)
	}
	if err == nil {
		a.prompt, err = conversation(list)
	}
	s.generate(w, r, &a, err, responsesForm, ill)
}

func (p *reply) status(over bool) string {
	switch {
	case !over:
		return "in_progress"
	case p.job.reason == "length":
		return "incomplete"
	}
	return "completed"
}

func (p *reply) item(over bool) object {
	return object{"id": "msg_" + p.id, "type": "message", "role": "assistant", "status": p.status(over), "content": []any{p.part()}}
}

func (p *reply) part() object {
	return object{"type": "output_text", "text": p.text, "annotations": []any{}, "logprobs": nil}
}

func (p *reply) response(over bool) object {
	b := object{
		"id": p.id, "object": "response", "created_at": p.created, "model": p.a.name, "status": p.status(over), "output": []any{},
		"parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{}, "temperature": 1.0, "top_p": 1.0, "error": nil,
		"incomplete_details": nil, "instructions": nil, "metadata": nil, "usage": nil,
	}
	if over {
		u := p.usage(p.job.seq.Generated)
		b["output"] = []any{p.item(true)}
		b["usage"] = object{
			"input_tokens": u["prompt_tokens"], "output_tokens": u["completion_tokens"], "total_tokens": u["total_tokens"],
			"input_tokens_details": u["prompt_tokens_details"], "output_tokens_details": object{"reasoning_tokens": 0},
		}
	}
	if b["status"] == "incomplete" {
		b["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	return b
}

func (p *reply) numbered(kind string, more object) error {
	more["type"], more["sequence_number"] = kind, p.number
	p.number++
	return p.send(kind, more)
}

func (p *reply) within(more object) object {
	more["item_id"], more["output_index"], more["content_index"] = "msg_"+p.id, 0, 0
	return more
}

// messagesForm is Anthropic's API.
var messagesForm = form{
	prefix: "msg_",
	fail: func(_ *Server, w http.ResponseWriter, err error) {
		f := failureOf(err)
		if f == nil {
			panic(http.ErrAbortHandler)
		}
		kind := map[int]string{400: "invalid_request_error", 404: "not_found_error", 503: "overloaded_error"}[f.status]
		write(w, f.status, object{"type": "error", "error": object{"type": cmp.Or(kind, "api_error"), "message": f.message}})
	},
	begin: func(p *reply) error {
		_ = p.send("message_start", object{"type": "message_start", "message": p.message([]any{}, nil, 0)})
		return p.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
	},
	delta: func(p *reply, text string, _ []Token, _ bool) error {
		return p.send("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": text}})
	},
	finish: func(p *reply) {
		_ = p.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
		_ = p.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": p.endReason(), "stop_sequence": p.job.stopReason()}, "usage": object{"output_tokens": p.tokens}})
		_ = p.send("message_stop", object{"type": "message_stop"}) // the client has left
	},
	whole: func(p *reply) any {
		return p.message([]any{object{"type": "text", "text": p.text}}, p.endReason(), p.job.seq.Generated)
	},
}

func messages(s *Server, w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		sampling
		Messages []message       `json:"messages"`
		System   json.RawMessage `json:"system"`
		Stops    []string        `json:"stop_sequences"`
	}
	var a ask
	err := read(r, &body)
	if err == nil {
		a, err = body.ask(s.cfg.Surface)
	}
	if err == nil {
		a.stop = body.Stops
		if len(body.System) > 0 {
			body.Messages = append([]message{{Role: "system", Content: body.System}}, body.Messages...)
		}
		a.prompt, err = conversation(body.Messages)
	}
	s.generate(w, r, &a, err, messagesForm, ill)
}

func (p *reply) message(content []any, reason any, generated int) object {
	return object{"id": p.id, "type": "message", "role": "assistant", "model": p.a.name, "content": content,
		"stop_reason": reason, "stop_sequence": p.job.stopReason(), "usage": object{"input_tokens": p.job.seq.Prompt, "output_tokens": generated}}
}

func (p *reply) endReason() string {
	switch {
	case p.job.stopReason() != nil:
		return "stop_sequence"
	case p.job.reason == "length":
		return "max_tokens"
	}
	return "end_turn"
}
