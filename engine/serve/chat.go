package serve

import (
	"errors"
	"net/http"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/sample"
)

// chatCompletions answers POST /v1/chat/completions.
func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	if err := s.read(w, r, &c); err != nil {
		return err
	}
	model, err := s.modelName(c.Model)
	if err != nil {
		return err
	}
	req, err := c.request()
	if err != nil {
		return err
	}
	if string(c.ToolChoice) == `"none"` {
		c.Tools = nil
	}
	if req.Prompt, err = s.chatPrompt(&c.prompt); err != nil {
		return err
	}
	a := &chatAnswer{words: s.engine.Tokenizer(), logprobs: c.Logprobs, choices: make([]collected, req.N)}
	err = s.generate(w, r, &c.options, newEnvelope("chatcmpl-", model, req.N, a), []engine.Request{req})
	var refused *engine.RequestError
	if errors.As(err, &refused) && refused.Param == "prompt" { // which the client wrote as messages
		named := *refused
		named.Param = "messages"
		return &named
	}
	return err
}

// chatPrompt renders a conversation with the model's template.
func (s *Server) chatPrompt(p *prompt) ([]int32, error) {
	turns, err := p.turns()
	if err != nil {
		return nil, err
	}
	tools := p.Tools
	if string(tools) == "null" {
		tools = nil
	}
	text, err := s.template.Render(turns, chat.Options{
		AddGenerationPrompt: or(p.AddGenerationPrompt, true),
		Tools:               tools,
		Extra:               p.TemplateArgs,
		Guard:               s.guard,
	})
	if err != nil {
		return nil, templateError(err)
	}
	return s.encode(text, true), nil
}

// encode makes a prompt's text tokens, with the beginning-of-text token where the model wants one and the text has none.
func (s *Server) encode(text string, special bool) []int32 {
	tok := s.engine.Tokenizer()
	ids := tok.Encode(text, special)
	if bos, add := tok.BOS(); add && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	return ids
}

// chatAnswer is the form of /v1/chat/completions.
type chatAnswer struct {
	words    words
	logprobs bool
	choices  []collected
}

func (*chatAnswer) object() (whole, chunk string) { return "chat.completion", "chat.completion.chunk" }

func (a *chatAnswer) chunk(dst []byte, ev *engine.Event, first bool) []byte {
	if ev.Text == "" && ev.Finish == "" && !first && !a.logprobs {
		return dst
	}
	dst = appendInt(append(dst, `{"index":`...), ev.Index)
	dst = append(dst, `,"delta":{`...)
	if first {
		dst = append(dst, `"role":"assistant",`...)
	}
	dst = appendString(append(dst, `"content":`...), ev.Text)
	dst = append(dst, `},"logprobs":`...)
	dst = a.appendLogprobs(dst, *ev)
	return appendFinish(dst, ev.Finish, ev.StopString)
}

func (a *chatAnswer) collect(ev *engine.Event, _ bool) { a.choices[ev.Index].add(ev, a.logprobs) }

func (a *chatAnswer) choice(dst []byte, index int) []byte {
	c := &a.choices[index]
	dst = appendInt(append(dst, `{"index":`...), index)
	dst = appendString(append(dst, `,"message":{"role":"assistant","content":`...), string(c.text))
	dst = append(dst, `,"refusal":null},"logprobs":`...)
	dst = a.appendLogprobs(dst, c.events...)
	return appendFinish(dst, c.finish, c.stop)
}

// appendLogprobs appends {"content":[…]} with an entry for each token, or null.
func (a *chatAnswer) appendLogprobs(dst []byte, events ...engine.Event) []byte {
	if !a.logprobs {
		return append(dst, `null`...)
	}
	dst = append(dst, `{"content":[`...)
	n := len(dst)
	for i := range events {
		c := &events[i].Choice
		if !scored(*c) {
			continue
		}
		if len(dst) > n {
			dst = append(dst, ',')
		}
		dst = a.appendToken(dst, sample.Alternative{Token: c.Token, Logprob: c.Logprob})
		dst = append(dst, `,"top_logprobs":[`...)
		for j, t := range c.Top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(a.appendToken(dst, t), '}')
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendToken appends a token's object, without its closing brace.
func (a *chatAnswer) appendToken(dst []byte, t sample.Alternative) []byte {
	text, raw := word(a.words, t.Token)
	dst = appendString(append(dst, `{"token":`...), text)
	dst = appendLogprob(append(dst, `,"logprob":`...), t.Logprob)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range raw {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, int(b))
	}
	return append(dst, ']')
}
