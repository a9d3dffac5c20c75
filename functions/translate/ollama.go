package translate

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

var refusedOfOllama = map[string]string{
	"raw":                "a conversation goes through the model's template: send it to /api/generate as a prompt",
	"template":           "the template is the model's own",
	"context":            "it is a model's state in tokens: send the conversation to /api/chat",
	"suffix":             "texts are not filled in here",
	"truncate":           "a prompt that is too long is refused",
	"shift":              "an answer ends where the context does",
	"_debug_render_only": "prompts are not told",
	"width":              "no images are made here",
	"height":             "no images are made here",
	"steps":              "no images are made here",
}

// ollamaRequest has the values that the answer repeats.
type ollamaRequest struct {
	*request
	model    string // as the client wrote it
	generate bool   // of /api/generate
	began    time.Time
}

func (h *Handler) readOllama(in *request) *ollamaRequest {
	in.refuseFields(refusedOfOllama, "false", `""`, "[]", "0")
	var model, name string
	in.take("model", &model)
	in.take("name", &name) // the old name, which Ollama's command line sends
	r := &ollamaRequest{request: in, model: cmp.Or(model, name), began: time.Now()}
	if model = r.model; model != "" {
		if !slices.Contains(h.Names, api.ModelName(model)) {
			model = strings.TrimSuffix(model, names.Latest) // Ollama's clients add it
		}
		in.put("model", model)
	}
	in.remove("keep_alive") // the function declares it
	in.ollamaOptions()
	return r
}

func askChat(h *Handler, in *request) shape {
	r := h.readOllama(in)
	var messages []ollamaTurn
	if r.take("messages", &messages); len(messages) == 0 {
		return r.loaded()
	}
	for i := range messages {
		messages[i].Role = strings.ToLower(messages[i].Role) // as Ollama does
	}
	if last := &messages[len(messages)-1]; last.Role == "assistant" {
		r.continueLast(strings.TrimSpace(last.Content) != "" && len(last.Calls) == 0)
	}
	return r.askTurns(messages)
}

// askGenerate makes the prompt a user's message, or a text to complete if it is raw.
func askGenerate(h *Handler, in *request) shape {
	user, system, raw := ollamaTurn{Role: "user"}, ollamaTurn{Role: "system"}, false
	in.take("raw", &raw)
	r := h.readOllama(in)
	r.generate = true
	in.take("prompt", &user.Content)
	in.take("system", &system.Content)
	in.take("images", &user.Images)
	switch {
	case user.Content == "" && len(user.Images) == 0:
		return r.loaded()
	case raw:
		if system.Content != "" || len(user.Images) > 0 {
			in.refuse("raw", "raw can't be kept beside system or images: write all into the prompt, or leave raw out")
		}
		return r.askText(user.Content)
	}
	turns := []ollamaTurn{system, user}
	if system.Content == "" {
		turns = turns[1:]
	}
	return r.askTurns(turns)
}

func (r *ollamaRequest) askText(prompt string) shape {
	for _, field := range []string{"think", "logprobs"} {
		if r.has(field) && string(r.object[field]) != "false" {
			r.refuse(field, "%s can't be kept beside raw: leave one of the two out", field)
		}
	}
	r.remove("think", "logprobs", "top_logprobs")
	r.put("prompt", prompt)
	return r.ask(pathText)
}

func (r *ollamaRequest) askTurns(messages []ollamaTurn) shape {
	t := ollamaTurns{request: r.request}
	for i := range messages {
		t.add(&messages[i], i)
	}
	r.put("messages", t.out)
	if string(r.object["tools"]) == "[]" {
		r.remove("tools")
	}
	r.think()
	if string(r.object["logprobs"]) != "true" {
		r.remove("top_logprobs")
	}
	return r.ask("")
}

func (r *ollamaRequest) ask(path string) shape {
	if !r.has("stream") {
		r.put("stream", true) // Ollama's default
	}
	r.ollamaFormat()
	r.setStreamOptions()
	return shape{path: path, names: ollamaNames, style: api.StreamLines, answer: whole(r.whole), events: func(out *output) events { return &ollamaLines{out: out, request: r} }}
}

func (r *request) think() {
	effort := strings.Trim(string(r.object["think"]), `"`)
	r.remove("think")
	switch effort {
	case "", "null":
		return
	case "false":
		r.setTemplate("enable_thinking", false)
		return
	case "true":
		effort = "medium"
	case "low", "medium", "high":
	default:
		r.refuse("think", "think is %.40s: want true, false, low, medium or high", effort)
	}
	r.put("reasoning_effort", effort)
	r.setTemplate("enable_thinking", true)
}

func (r *request) ollamaFormat() {
	raw := r.object["format"]
	switch {
	case !r.has("format"), string(raw) == `""`:
	case string(raw) == `"json"`:
		r.put("response_format", jsonObject)
	case raw[0] == '{':
		r.put("response_format", jsonSchema("answer", raw, true))
	default:
		r.refuse("format", `format is %.40s: want "json" or a JSON schema`, raw)
	}
	r.remove("format")
}

// ollamaTurn is Ollama's message, in requests and answers.
type ollamaTurn struct {
	Role     string       `json:"role"`
	Content  string       `json:"content"`
	Thinking string       `json:"thinking,omitempty"`
	Images   []string     `json:"images,omitempty"`
	Calls    []ollamaCall `json:"tool_calls,omitempty"`
	Tool     string       `json:"tool_name,omitempty"`
	CallID   string       `json:"tool_call_id,omitempty"`
}

type ollamaCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// ollamaTurns matches results to calls by their tool's name and order: Ollama's need no identifiers.
type ollamaTurns struct {
	*request
	out  []chatTurn
	open []ollamaCall // without a result yet
}

func (t *ollamaTurns) add(m *ollamaTurn, at int) {
	out := chatTurn{Role: m.Role, Content: m.Content}
	switch m.Role {
	case "system", "user":
	case "tool":
		out.CallID = new(t.takeCall(m))
	case "assistant":
		if m.Thinking != "" {
			out.Reasoning = &m.Thinking
		}
		for i, c := range m.Calls {
			c.ID = cmp.Or(c.ID, fmt.Sprintf("call_%d_%d", at, i))
			arguments := compact(c.Function.Arguments) // an object, or its text
			_ = json.Unmarshal(c.Function.Arguments, &arguments)
			t.open = append(t.open, c)
			out.Calls = append(out.Calls, toolCall(c.ID, c.Function.Name, arguments))
		}
	default:
		t.refuse("messages", "messages[%d].role is %.40q: want system, user, assistant or tool", at, m.Role)
	}
	if len(m.Images) > 0 {
		out.Content = t.imageParts(m)
	}
	t.out = append(t.out, out)
}

func (t *ollamaTurns) imageParts(m *ollamaTurn) (parts []any) {
	if m.Content != "" {
		parts = append(parts, textPart(m.Content))
	}
	for i, image := range m.Images {
		head, err := base64.StdEncoding.DecodeString(image[:min(len(image), 512)]) // whole groups of four
		if err != nil {
			t.refuse("images", "images[%d] is no base64: %v", i, err)
		}
		parts = append(parts, imagePart("data:"+http.DetectContentType(head)+";base64,"+image, ""))
	}
	return parts
}

// takeCall returns the identifier of the named call, else the tool's first, or the first if m names none.
func (t *ollamaTurns) takeCall(m *ollamaTurn) string {
	at := slices.IndexFunc(t.open, func(c ollamaCall) bool { return c.ID == m.CallID || m.CallID == "" && c.Function.Name == m.Tool })
	if at < 0 && m.CallID == "" && m.Tool == "" && len(t.open) > 0 {
		at = 0
	}
	if at < 0 {
		return m.CallID
	}
	id := t.open[at].ID
	t.open = slices.Delete(t.open, at, at+1)
	return id
}

var keptOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "stop": "stop", "repeat_penalty": "repetition_penalty",
	"presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}

// hostOptions are the function's to declare.
var hostOptions = strings.Fields("num_batch num_ctx num_gpu main_gpu low_vram use_mmap use_mlock num_thread numa f16_kv vocab_only logits_all num_keep mirostat_tau mirostat_eta")

// neutralOptions have no effect with these values.
var neutralOptions = map[string]float64{"mirostat": 0, "tfs_z": 1, "typical_p": 1, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}

// ollamaOptions refuses options that change the answer and can't be translated.
func (r *request) ollamaOptions() {
	var all object
	r.take("options", &all)
	for name, raw := range all {
		if !all.has(name) || slices.Contains(hostOptions, name) {
			continue
		}
		if as, kept := keptOptions[name]; kept {
			r.object[as] = raw
			continue
		}
		var n float64
		if json.Unmarshal(raw, &n) != nil {
			r.refuse("options."+name, "options.%s is %.40s, which can't be kept here: leave it out", name, raw)
		}
		r.setOption(all, name, n)
	}
	if string(r.object["stop"]) == "[]" {
		r.remove("stop")
	}
}

func (r *request) setOption(all object, name string, n float64) {
	switch name {
	case "num_predict", "top_k", "seed":
		switch {
		case n != math.Trunc(n) || math.Abs(n) > 1<<53:
			r.refuse("options."+name, "options.%s is %v: want a whole number", name, n)
		case name == "top_k":
			r.put("top_k", max(int64(n), -1))
		case name == "num_predict" && n > 0: // else only the context limits it
			r.put("max_tokens", int64(n))
		case name == "seed" && n >= 0: // else each answer has another
			r.put("seed", int64(n))
		}
	case "repeat_last_n": // penalties are for the whole context, as with -1
		for _, penalty := range []string{"repeat_penalty", "presence_penalty", "frequency_penalty"} {
			if n != -1 && all.has(penalty) && !isNeutral(penalty, all[penalty]) {
				r.refuse("options.repeat_last_n", "options.repeat_last_n is %v, which can't be kept beside a penalty: penalties are for all of the context, leave it out or send -1", n)
			}
		}
	default:
		if !isNeutral(name, all[name]) {
			r.refuse("options."+name, "options.%.40s is %v, which can't be kept here: leave it out", name, n)
		}
	}
}

func isNeutral(name string, raw json.RawMessage) bool {
	neutral, known := neutralOptions[name]
	var n float64
	return known && json.Unmarshal(raw, &n) == nil && n == neutral
}
