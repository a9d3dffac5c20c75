package translate

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

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

// ollamaCounts ends an answer. The runtime does not report its times: they are measured in a stream; else all of the
// time is the answer's.
type ollamaCounts struct {
	Total      time.Duration `json:"total_duration"`
	Load       time.Duration `json:"load_duration"` // 0: the model was loaded when the request came here
	Prompt     int           `json:"prompt_eval_count"`
	PromptTime time.Duration `json:"prompt_eval_duration"`
	Output     int           `json:"eval_count"`
	OutputTime time.Duration `json:"eval_duration"`
}

var ollamaNames = map[string]string{
	"max_tokens": "options.num_predict", "response_format": "format", "reasoning_effort": "think", "repetition_penalty": "options.repeat_penalty",
	"temperature": "options.temperature", "top_p": "options.top_p", "top_k": "options.top_k", "min_p": "options.min_p", "seed": "options.seed", "stop": "options.stop",
	"presence_penalty": "options.presence_penalty", "frequency_penalty": "options.frequency_penalty",
}

// whole translates a whole completion.
func (r *ollamaRequest) whole(c *completion) any {
	choice := &c.Choices[0]
	line := r.line(c.Model, choice.Message.Content+choice.Text, choice.Message.reasoning(), choice.Message.Calls, choice.Scores)
	return r.done(line, choice.Finish, &ollamaCounts{Prompt: c.Usage.Prompt, Output: c.Usage.Completion, OutputTime: time.Since(r.began)})
}

// loaded answers a request that only loads the model.
func (r *ollamaRequest) loaded() shape {
	return loads(r.done(r.line("", "", "", nil, nil), "load", nil))
}

// line returns a line with a model's output.
func (r *ollamaRequest) line(model, text, thoughts string, calls []call, s scores) ollamaLine {
	l := ollamaLine{Model: cmp.Or(r.model, model), Created: time.Now().UTC(), Scores: s}
	said := ollamaTurn{Role: "assistant", Content: text, Thinking: thoughts}
	for i, c := range calls {
		o := ollamaCall{ID: c.ID}
		o.Function.Index, o.Function.Name = i, c.Function.Name
		o.Function.Arguments, _ = json.Marshal(parseArguments(c.Function.Arguments)) // JSON that was read
		said.Calls = append(said.Calls, o)
	}
	if r.generate {
		l.Response, l.Thinking, l.Calls = &said.Content, said.Thinking, said.Calls
	} else {
		l.Message = &said
	}
	return l
}

// done converts a line to the last one.
func (r *ollamaRequest) done(l ollamaLine, finish string, counts *ollamaCounts) ollamaLine {
	l.Done, l.Reason, l.ollamaCounts = true, finish, counts
	if slices.Contains([]string{"tool_calls", "function_call", ""}, finish) {
		l.Reason = "stop"
	}
	if counts != nil {
		counts.Total = time.Since(r.began)
	}
	return l
}

// ollamaLines writes the lines of Ollama's stream.
type ollamaLines struct {
	out         *output
	request     *ollamaRequest
	model       string
	first, last time.Time // the times of parts of the answer
	calls       []call    // each is sent complete, in one line
	arguments   [][]byte  // of the calls
	size        int       // of all arguments
}

// add implements events.
func (s *ollamaLines) add(c *completion) *api.Error {
	s.model = cmp.Or(c.Model, s.model)
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
		s.write(s.request.line(s.model, text, thoughts, nil, choice.Scores))
	}
	for _, c := range choice.Delta.Calls {
		at := slices.IndexFunc(s.calls, func(known call) bool { return known.Index == c.Index })
		if at < 0 {
			at = len(s.calls)
			s.calls, s.arguments = append(s.calls, c), append(s.arguments, nil)
		}
		s.arguments[at] = append(s.arguments[at], c.Function.Arguments...)
		if s.size += len(c.Function.Arguments); s.size > maxLine {
			return errTooLong()
		}
	}
	return nil
}

// end implements events.
func (s *ollamaLines) end(e ending) {
	if len(s.calls) > 0 {
		for i := range s.calls {
			s.calls[i].Function.Arguments = string(s.arguments[i])
		}
		s.write(s.request.line(s.model, "", "", s.calls, nil))
	}
	counts := &ollamaCounts{Prompt: e.usage.Prompt, Output: e.usage.Completion}
	if !s.first.IsZero() {
		counts.PromptTime, counts.OutputTime = s.first.Sub(s.request.began), s.last.Sub(s.first)
	}
	s.write(s.request.done(s.request.line(s.model, "", "", nil, nil), e.finish, counts))
}

func (s *ollamaLines) write(l ollamaLine) {
	raw, _ := json.Marshal(l) // types of ours and text that was read
	s.out.Write(append(raw, '\n'))
}
