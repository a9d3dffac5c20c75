package translate

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// ollamaTold is what an answer in Ollama's own API tells of its request.
type ollamaTold struct {
	model    string // as the client wrote it
	generate bool   // it is one of /api/generate
	began    time.Time
}

// ollamaLine is an answer, or a line of one.
type ollamaLine struct {
	Model    string            `json:"model"`
	Created  time.Time         `json:"created_at"`
	Message  *ollamaTurn       `json:"message,omitempty"`  // of /api/chat
	Response *string           `json:"response,omitempty"` // of /api/generate, with the next two
	Thinking string            `json:"thinking,omitempty"`
	Calls    []ollamaCall      `json:"tool_calls,omitempty"`
	Done     bool              `json:"done"`
	Reason   string            `json:"done_reason,omitempty"`
	Scores   []json.RawMessage `json:"logprobs,omitempty"`
	*ollamaCounts
}

// ollamaCounts ends an answer. How long the runtime took for what, it does not say: of a stream it shows, else all is the answer's.
type ollamaCounts struct {
	Total      time.Duration `json:"total_duration"`
	Load       time.Duration `json:"load_duration"` // 0: the model was loaded when the request came here
	Prompt     int           `json:"prompt_eval_count"`
	PromptTime time.Duration `json:"prompt_eval_duration"`
	Output     int           `json:"eval_count"`
	OutputTime time.Duration `json:"eval_duration"`
}

// ollamaNames are those of fields that a chat completion has by another name.
var ollamaNames = map[string]string{
	"max_tokens": "options.num_predict", "response_format": "format", "reasoning_effort": "think", "repetition_penalty": "options.repeat_penalty",
	"temperature": "options.temperature", "top_p": "options.top_p", "top_k": "options.top_k", "min_p": "options.min_p", "seed": "options.seed", "stop": "options.stop",
	"presence_penalty": "options.presence_penalty", "frequency_penalty": "options.frequency_penalty",
}

func (t ollamaTold) shape() shape {
	return shape{names: ollamaNames, lines: true, events: func(out *bytes.Buffer) events { return &ollamaLines{text: out, told: t} }, answer: whole(func(c *completion) any {
		choice := &c.Choices[0]
		calls := make([]ollamaCall, len(choice.Message.Calls))
		for i, call := range choice.Message.Calls {
			calls[i] = newOllamaCall(i, call.ID, call.Function.Name, call.Function.Arguments)
		}
		line := t.line(c.Model, choice.Message.Content+choice.Text, choice.Message.reasoning(), calls, choice.Scores)
		return t.done(line, choice.Finish, &ollamaCounts{Prompt: c.Usage.Prompt, Output: c.Usage.Completion, OutputTime: time.Since(t.began)})
	})}
}

// loaded is the answer to a request that only wants the model to be loaded.
func (t ollamaTold) loaded() shape { return loads(t.done(t.line("", "", "", nil, nil), "load", nil)) }

// line is one with what a model has said.
func (t ollamaTold) line(model, text, thoughts string, calls []ollamaCall, scores json.RawMessage) ollamaLine {
	l := ollamaLine{Model: t.model, Created: time.Now().UTC()}
	if t.model == "" {
		l.Model = model
	}
	if t.generate {
		l.Response, l.Thinking, l.Calls = &text, thoughts, calls
	} else {
		l.Message = &ollamaTurn{Role: "assistant", Content: text, Thinking: thoughts, Calls: calls}
	}
	var s struct{ Content []json.RawMessage }
	if json.Unmarshal(scores, &s) == nil {
		l.Scores = s.Content
	}
	return l
}

// done makes a line the last one.
func (t ollamaTold) done(l ollamaLine, finish string, counts *ollamaCounts) ollamaLine {
	l.Done, l.Reason, l.ollamaCounts = true, finish, counts
	if finish == "tool_calls" || finish == "function_call" || finish == "" {
		l.Reason = "stop"
	}
	if counts != nil {
		counts.Total = time.Since(t.began)
	}
	return l
}

func newOllamaCall(index int, id, name, arguments string) (c ollamaCall) {
	c.ID, c.Function.Index, c.Function.Name = id, index, name
	c.Function.Arguments, _ = json.Marshal(input(arguments)) // of JSON that was read
	return c
}

// ollamaLines are the lines of Ollama's stream.
type ollamaLines struct {
	text        *bytes.Buffer
	told        ollamaTold
	model       string
	first, last time.Time // when the first part came, and the last
	calls       []lineCall
	size        int // of the calls' arguments
	finish      string
	usage       usage
}

// lineCall is a call whose parts are collected: a line tells it whole.
type lineCall struct {
	index     int
	id, name  string
	arguments []byte
}

// chunk implements events.
func (s *ollamaLines) chunk(c *completion) *api.Error {
	if c.Usage.Prompt > 0 {
		s.usage = c.Usage
	}
	if c.Model != "" {
		s.model = c.Model
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	text, thoughts := choice.Delta.Content+choice.Text, choice.Delta.reasoning()
	if text != "" || thoughts != "" || len(choice.Delta.Calls) > 0 {
		if s.last = time.Now(); s.first.IsZero() {
			s.first = s.last
		}
	}
	if text != "" || thoughts != "" {
		s.write(s.told.line(s.model, text, thoughts, nil, choice.Scores))
	}
	for _, call := range choice.Delta.Calls {
		at := slices.IndexFunc(s.calls, func(l lineCall) bool { return l.index == call.Index })
		if at < 0 {
			at = len(s.calls)
			s.calls = append(s.calls, lineCall{index: call.Index, id: call.ID, name: call.Function.Name})
		}
		s.calls[at].arguments = append(s.calls[at].arguments, call.Function.Arguments...)
		if s.size += len(call.Function.Arguments); s.size > maxLine {
			return tooLong()
		}
	}
	if choice.Finish != "" {
		s.finish = choice.Finish
	}
	return nil
}

// end implements events. An answer that has not said why it ends was cut.
func (s *ollamaLines) end() *api.Error {
	if s.finish == "" {
		return errCut()
	}
	if len(s.calls) > 0 {
		calls := make([]ollamaCall, len(s.calls))
		for i, c := range s.calls {
			calls[i] = newOllamaCall(i, c.id, c.name, string(c.arguments))
		}
		s.write(s.told.line(s.model, "", "", calls, nil))
	}
	counts := &ollamaCounts{Prompt: s.usage.Prompt, Output: s.usage.Completion}
	if !s.first.IsZero() {
		counts.PromptTime, counts.OutputTime = s.first.Sub(s.told.began), s.last.Sub(s.first)
	}
	s.write(s.told.done(s.told.line(s.model, "", "", nil, nil), s.finish, counts))
	return nil
}

// fail implements events.
func (s *ollamaLines) fail(e *api.Error) { s.text.Write(e.Line()) }

func (s *ollamaLines) write(l ollamaLine) {
	raw, _ := json.Marshal(l) // of our own types and of text that was read
	s.text.Write(append(raw, '\n'))
}
