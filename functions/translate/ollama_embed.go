package translate

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type ollamaVectors struct {
	Model   string        `json:"model"`
	Vectors [][]float32   `json:"embeddings"`
	Total   time.Duration `json:"total_duration"`
	Load    time.Duration `json:"load_duration"` // 0: it was loaded before
	Prompt  int           `json:"prompt_eval_count"`
}

// askEmbed cuts a long text at its end by default, as Ollama does.
func askEmbed(h *Handler, in *request) shape {
	cut, dimensions := true, 0
	in.take("truncate", &cut)
	r := h.readOllama(in)
	var texts []string
	var one string
	if in.has("input") && json.Unmarshal(in.object["input"], &one) == nil {
		texts = []string{one}[:min(len(one), 1)] // an empty text counts as none
	} else {
		in.take("input", &texts)
	}
	in.take("dimensions", &dimensions)
	answer := ollamaVectors{Model: r.model, Vectors: [][]float32{}}
	if len(texts) == 0 {
		return loads(answer)
	}
	if cut {
		in.put("truncate_prompt_tokens", -1)
		in.put("truncation_side", "right")
	}
	if dimensions > 0 {
		in.put("dimensions", dimensions)
	}
	return in.askVectors(texts, func(vectors [][]float32, tokens int) any {
		answer.Vectors, answer.Prompt, answer.Total = vectors, tokens, time.Since(r.began)
		return answer
	})
}

// askEmbeddings asks for one unnormalised vector (the older /api/embeddings).
func askEmbeddings(h *Handler, in *request) shape {
	h.readOllama(in)
	var prompt string
	if in.take("prompt", &prompt); prompt == "" {
		return loads(map[string][]float32{"embedding": {}})
	}
	in.put("normalize", false)
	return in.askVectors([]string{prompt}, func(vectors [][]float32, _ int) any { return map[string][]float32{"embedding": vectors[0]} })
}

// askShow asks the engine, which has this path too, by the model's own name.
func askShow(h *Handler, in *request) shape {
	if h.readOllama(in).model == "" {
		in.refuse("model", "model is required")
	}
	if in.has("system") && string(in.object["system"]) != `""` {
		in.refuse("system", "system can't be kept: the description of a model comes from its file")
	}
	return shape{path: pathShow, answer: func(body []byte) (any, bool) { return json.RawMessage(body), json.Valid(body) }}
}

// loads answers a request that only loads the model: a runtime that lists its models has done so.
func loads(answer any) shape {
	return shape{path: pathModels, answer: func([]byte) (any, bool) { return answer, true }}
}

// askVectors requests base64, which takes half the memory.
func (r *request) askVectors(texts []string, answer func(vectors [][]float32, tokens int) any) shape {
	r.put("input", texts)
	r.put("encoding_format", "base64")
	return shape{path: pathVectors, answer: func(body []byte) (any, bool) {
		vectors, tokens := readVectors(body, len(texts))
		if vectors == nil {
			return nil, false
		}
		return answer(vectors, tokens), true
	}}
}

// readVectors returns the vectors of n texts, in their order; nil: the answer is invalid. A runtime may send numbers instead of base64.
func readVectors(body []byte, n int) (vectors [][]float32, tokens int) {
	var in struct {
		Data []struct {
			Index  int
			Vector json.RawMessage `json:"embedding"`
		}
		Usage usage
	}
	if json.Unmarshal(body, &in) != nil || len(in.Data) != n {
		return nil, 0
	}
	vectors = make([][]float32, n)
	for _, d := range in.Data {
		if d.Index < 0 || d.Index >= n || vectors[d.Index] != nil {
			return nil, 0
		}
		v := &vectors[d.Index]
		if json.Unmarshal(d.Vector, v) == nil && *v != nil {
			continue
		}
		var encoded []byte
		if json.Unmarshal(d.Vector, &encoded) != nil || len(encoded) == 0 || len(encoded)%4 != 0 {
			return nil, 0
		}
		*v = make([]float32, len(encoded)/4)
		for i := range *v {
			x := math.Float32frombits(binary.LittleEndian.Uint32(encoded[4*i:]))
			if x-x != 0 { // infinite or NaN, which JSON lacks
				return nil, 0
			}
			(*v)[i] = x
		}
	}
	return vectors, in.Usage.Prompt
}

type ollamaLine struct {
	Model    string            `json:"model"`
	Created  time.Time         `json:"created_at"`
	Message  *ollamaTurn       `json:"message,omitempty"`  // /api/chat
	Response *string           `json:"response,omitempty"` // /api/generate, with the next two
	Thinking string            `json:"thinking,omitempty"`
	Calls    []ollamaCall      `json:"tool_calls,omitempty"`
	Done     bool              `json:"done"`
	Reason   string            `json:"done_reason,omitempty"`
	Scores   []json.RawMessage `json:"logprobs,omitempty"`
	*ollamaCounts
}

// ollamaCounts measures times in a stream; else all time is the answer's.
type ollamaCounts struct {
	Total      time.Duration `json:"total_duration"`
	Load       time.Duration `json:"load_duration"` // 0: it was loaded before
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

func (r *ollamaRequest) whole(c *completion) any {
	choice := &c.Choices[0]
	line := r.line(c.Model, choice.Message.Content+choice.Text, choice.Message.reasoning(), choice.Message.Calls, choice.Scores)
	return r.done(line, choice.Finish, &ollamaCounts{Prompt: c.Usage.Prompt, Output: c.Usage.Completion, OutputTime: time.Since(r.began)})
}

func (r *ollamaRequest) loaded() shape {
	return loads(r.done(r.line("", "", "", nil, nil), "load", nil))
}

func (r *ollamaRequest) line(model, text, thoughts string, calls []call, s scores) ollamaLine {
	l := ollamaLine{Model: cmp.Or(r.model, model), Created: time.Now().UTC(), Scores: s}
	said := ollamaTurn{Role: "assistant", Content: text, Thinking: thoughts}
	for i, c := range calls {
		o := ollamaCall{ID: c.ID}
		o.Function.Index, o.Function.Name = i, c.Function.Name
		o.Function.Arguments, _ = json.Marshal(parseArguments(c.Function.Arguments)) // can't fail
		said.Calls = append(said.Calls, o)
	}
	if r.generate {
		l.Response, l.Thinking, l.Calls = &said.Content, said.Thinking, said.Calls
	} else {
		l.Message = &said
	}
	return l
}

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

type ollamaLines struct {
	out         *output
	request     *ollamaRequest
	model       string
	first, last time.Time // of the answer's parts
	calls       []call    // sent complete, in one line
	arguments   [][]byte
	size        int // of all arguments
}

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
	raw, _ := json.Marshal(l) // can't fail
	s.out.Write(append(raw, '\n'))
}
