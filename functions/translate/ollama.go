package translate

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// Fields of a request in Ollama's own API that nothing here can do; the values that ask for nothing are as good as none.
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

// fromOllama reads what requests in Ollama's own API have in common, but for fields that are the caller's. It returns the
// model's name as the client wrote it.
func (h *Handler) fromOllama(body []byte, own ...string) (in object, name string, err error) {
	if in, err = read(body, nil); err != nil {
		return nil, "", err
	}
	for field, why := range refusedOfOllama {
		if slices.Contains(own, field) {
			continue
		}
		if v := string(bytes.TrimSpace(in[field])); !slices.Contains([]string{"", "null", "false", `""`, "[]", "0"}, v) {
			return nil, "", api.BadRequest(field, "%s can't be kept: %s", field, why)
		}
		delete(in, field)
	}
	for _, field := range []string{"name", "model"} { // its command line sends the old name, with an empty model
		var given string
		if err := in.take(field, &given); err != nil {
			return nil, "", err
		}
		name = cmp.Or(given, name)
	}
	if name != "" {
		in.put("model", h.untagged(name))
	}
	delete(in, "keep_alive") // how long the model stays is its function's to say
	return in, name, options(in)
}

// untagged is a name without the tag that Ollama's clients add to one without.
func (h *Handler) untagged(name string) string {
	if slices.Contains(h.Names, api.ModelName(name)) {
		return name
	}
	return strings.TrimSuffix(name, names.Latest)
}

// fromChat makes the body of a chat completion out of one of /api/chat.
func fromChat(h *Handler, body []byte) ([]byte, shape, error) {
	in, name, err := h.fromOllama(body)
	if err != nil {
		return nil, shape{}, err
	}
	var messages []ollamaTurn
	if err := in.take("messages", &messages); err != nil {
		return nil, shape{}, err
	}
	told := ollamaTold{model: name, began: time.Now()}
	if len(messages) == 0 {
		return nil, told.loaded(), nil
	}
	var t ollamaTurns
	for i, m := range messages {
		if err := t.add(&m, i); err != nil {
			return nil, shape{}, err
		}
	}
	if last := messages[len(messages)-1]; strings.EqualFold(last.Role, "assistant") {
		if strings.TrimSpace(last.Content) == "" || len(last.Calls) > 0 {
			return nil, shape{}, api.BadRequest("messages", "the last of messages is the assistant's and ends with no text: there is nothing to go on from, end with a message of the user's")
		}
		in.goOn()
	}
	return told.asked(in, t.out)
}

// fromGenerate makes the body of a chat completion out of one of /api/generate: a prompt is a user's turn, as it is
// in a model's template. One that is raw is a prompt as it is, for a completion of its text.
func fromGenerate(h *Handler, body []byte) ([]byte, shape, error) {
	in, name, err := h.fromOllama(body, "raw")
	if err != nil {
		return nil, shape{}, err
	}
	user, system, raw := ollamaTurn{Role: "user"}, ollamaTurn{Role: "system"}, false
	for field, to := range map[string]any{"prompt": &user.Content, "system": &system.Content, "images": &user.Images, "raw": &raw} {
		if err := in.take(field, to); err != nil {
			return nil, shape{}, err
		}
	}
	told := ollamaTold{model: name, generate: true, began: time.Now()}
	switch {
	case user.Content == "" && len(user.Images) == 0:
		return nil, told.loaded(), nil
	case raw && (system.Content != "" || len(user.Images) > 0):
		return nil, shape{}, api.BadRequest("raw", "raw can't be kept beside system or images: write all into the prompt, or leave raw out")
	case raw:
		return told.plain(in, user.Content)
	}
	var t ollamaTurns
	if system.Content != "" {
		if err := t.add(&system, 0); err != nil {
			return nil, shape{}, err
		}
	}
	if err := t.add(&user, 0); err != nil {
		return nil, shape{}, err
	}
	return told.asked(in, t.out)
}

// plain makes the body of a completion of a text.
func (t ollamaTold) plain(in object, prompt string) ([]byte, shape, error) {
	for _, field := range []string{"think", "logprobs"} {
		if v := string(bytes.TrimSpace(in[field])); v != "" && v != "null" && v != "false" {
			return nil, shape{}, api.BadRequest(field, "%s can't be kept beside raw: leave one of the two out", field)
		}
		delete(in, field)
	}
	delete(in, "top_logprobs")
	in.put("prompt", prompt)
	asked, to, err := t.body(in)
	to.of.path = pathText
	return asked, to, err
}

// asked makes the body of a chat completion of what is left of a request.
func (t ollamaTold) asked(in object, messages []any) ([]byte, shape, error) {
	in.put("messages", messages)
	if string(bytes.TrimSpace(in["tools"])) == "[]" {
		delete(in, "tools")
	}
	if err := thinks(in); err != nil {
		return nil, shape{}, err
	}
	if string(bytes.TrimSpace(in["logprobs"])) != "true" {
		delete(in, "top_logprobs") // it says how many, and no more
	}
	return t.body(in)
}

// body is what both have in common.
func (t ollamaTold) body(in object) ([]byte, shape, error) {
	if !in.has("stream") {
		in.put("stream", true) // Ollama's way
	}
	for _, step := range []func(object) error{ollamaForm, object.streamed} {
		if err := step(in); err != nil {
			return nil, shape{}, err
		}
	}
	asked, err := json.Marshal(in)
	return asked, t.shape(), err //nolint:wrapcheck // of JSON that was read
}

// thinks switches thoughts off, or on and says how much. A model that does not think refuses that.
func thinks(in object) error {
	effort := strings.Trim(string(bytes.TrimSpace(in["think"])), `"`)
	delete(in, "think")
	switch effort {
	case "", "null":
		return nil
	case "false":
		return in.template("enable_thinking", false)
	case "true":
		effort = "medium"
	case "low", "medium", "high":
	default:
		return api.BadRequest("think", "think is %.40s: want true, false, low, medium or high", effort)
	}
	in.put("reasoning_effort", effort)
	return in.template("enable_thinking", true)
}

// ollamaForm is that of the answer: "json", or a schema.
func ollamaForm(in object) error {
	raw := bytes.TrimSpace(in["format"])
	delete(in, "format")
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == `""`:
	case string(raw) == `"json"`:
		in.put("response_format", map[string]string{"type": "json_object"})
	case raw[0] == '{':
		in.put("response_format", map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": json.RawMessage(raw)}})
	default:
		return api.BadRequest("format", `format is %.40s: want "json" or a JSON schema`, raw)
	}
	return nil
}

// ollamaTurn is a message of Ollama's, in requests and in answers.
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

// ollamaTurns collects messages. Ollama's need no identifiers of calls: results are known by their tool's name, and their order.
type ollamaTurns struct {
	out  []any
	open []openCall // that have no result yet
}

type openCall struct{ id, name string }

func (t *ollamaTurns) add(m *ollamaTurn, at int) error {
	m.Role = strings.ToLower(m.Role) // as Ollama reads it
	out := map[string]any{"role": m.Role, "content": m.Content}
	switch m.Role {
	case "system", "user":
	case "tool":
		out["tool_call_id"] = t.answered(m)
	case "assistant":
		if m.Thinking != "" {
			out["reasoning_content"] = m.Thinking
		}
		calls := make([]any, len(m.Calls))
		for i, c := range m.Calls {
			calls[i] = t.call(&c, fmt.Sprintf("call_%d_%d", at, i))
		}
		if len(calls) > 0 {
			out["tool_calls"] = calls
		}
	default:
		return api.BadRequest("messages", "messages[%d].role is %.40q: want system, user, assistant or tool", at, m.Role)
	}
	if len(m.Images) > 0 {
		parts := []any{}
		if m.Content != "" {
			parts = append(parts, map[string]any{"type": "text", "text": m.Content})
		}
		for i, image := range m.Images {
			begin := image
			if len(image) > 512 { // whole groups of four
				begin = image[:512]
			}
			head, err := base64.StdEncoding.DecodeString(begin)
			if err != nil {
				return api.BadRequest("images", "images[%d] is no base64: %v", i, err)
			}
			parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]string{"url": "data:" + http.DetectContentType(head) + ";base64," + image}})
		}
		out["content"] = parts
	}
	t.out = append(t.out, out)
	return nil
}

// call is one of an earlier answer; id is for one without.
func (t *ollamaTurns) call(c *ollamaCall, id string) any {
	id = cmp.Or(c.ID, id)
	arguments := compact(c.Function.Arguments) // an object, or its text
	_ = json.Unmarshal(c.Function.Arguments, &arguments)
	t.open = append(t.open, openCall{id, c.Function.Name})
	return map[string]any{"id": id, "type": "function", "function": map[string]string{"name": c.Function.Name, "arguments": sent(arguments)}}
}

// answered is the call that a result belongs to: the one that it names, or else the first of its tool, or else the first.
func (t *ollamaTurns) answered(m *ollamaTurn) string {
	at := slices.IndexFunc(t.open, func(c openCall) bool { return c.id == m.CallID || m.CallID == "" && c.name == m.Tool })
	if at < 0 && m.CallID == "" && m.Tool == "" && len(t.open) > 0 {
		at = 0
	}
	if at < 0 {
		return m.CallID
	}
	id := t.open[at].id
	t.open = slices.Delete(t.open, at, at+1)
	return id
}
