package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// Fields of a request for a response that nothing here can do.
var refusedOfResponses = map[string]string{
	"previous_response_id": "responses are not stored here: send the conversation as input",
	"conversation":         "conversations are not stored here: send the conversation as input",
	"prompt":               "prompts are not stored here: send the text as input or instructions",
	"context_management":   "contexts are not edited here: send what is to be read",
}

// fromResponses makes the body of a chat completion out of one of responses.
func fromResponses(body []byte) ([]byte, shape, error) {
	in, err := read(body, refusedOfResponses)
	if err != nil {
		return nil, shape{}, err
	}
	said := told(in)
	messages, err := items(in)
	if err != nil {
		return nil, shape{}, err
	}
	in.put("messages", messages)
	for _, step := range []func(object) error{kept, functions, textForm, object.streamed} {
		if err := step(in); err != nil {
			return nil, shape{}, err
		}
	}
	asked, err := json.Marshal(in)
	return asked, shape{
		answer: whole(func(c *completion) any { return said.response(c) }),
		events: func(out *bytes.Buffer) events { return &responseEvents{text: out, response: said} },
	}, err
}

// told are the fields of a request that its response tells again.
func told(in object) response {
	r := response{Object: "response", Output: []any{}, Tools: toldTools(in), ToolChoice: json.RawMessage(`"auto"`), Parallel: json.RawMessage("true"),
		Text: toldText(in), Metadata: json.RawMessage("{}"), Truncation: "disabled"}
	for name, to := range map[string]*json.RawMessage{
		"instructions": &r.Instructions, "max_output_tokens": &r.MaxTokens, "temperature": &r.Temperature, "top_p": &r.TopP, "user": &r.User,
		"tool_choice": &r.ToolChoice, "parallel_tool_calls": &r.Parallel, "metadata": &r.Metadata, "reasoning": &r.Reasoning,
		"top_logprobs": &r.TopLogprobs, "max_tool_calls": &r.MaxCalls, "prompt_cache_key": &r.CacheKey, "safety_identifier": &r.Safety,
	} {
		if in.has(name) {
			*to = in[name]
		}
	}
	return r
}

// toldTools are a request's tools with every field that a response's have.
func toldTools(in object) json.RawMessage {
	var list []object
	if json.Unmarshal(in["tools"], &list) != nil || list == nil {
		return json.RawMessage("[]")
	}
	for _, t := range list {
		for name, none := range map[string]string{"strict": "false", "parameters": "{}", "description": "null"} {
			if _, found := t[name]; !found || name != "description" && !t.has(name) {
				t[name] = json.RawMessage(none)
			}
		}
	}
	raw, _ := json.Marshal(list) // of JSON that was read
	return raw
}

// toldText is the form of the answer, which has a default.
func toldText(in object) json.RawMessage {
	var text object
	if json.Unmarshal(in["text"], &text) != nil || text == nil {
		text = object{}
	}
	if !text.has("format") {
		text["format"] = json.RawMessage(`{"type":"text"}`)
	}
	raw, _ := json.Marshal(text) // of JSON that was read
	return raw
}

// kept renames what has another name, drops what says nothing to a model server, and refuses what is to be stored.
func kept(in object) error {
	for _, name := range []string{"store", "background"} {
		var on bool
		if err := in.take(name, &on); err != nil {
			return err
		}
		if on {
			return api.BadRequest(name, "%s can't be kept: responses are not stored here, leave it out", name)
		}
	}
	var include []string
	if err := in.take("include", &include); err != nil {
		return err
	}
	for _, what := range include {
		if what != "reasoning.encrypted_content" { // nothing is encrypted: thoughts are in the items
			return api.BadRequest("include", "include %.60q can't be kept: leave it out", what)
		}
	}
	if err := in.drop("truncation", "disabled"); err != nil {
		return err
	}
	var reasoning struct{ Effort, Summary json.RawMessage }
	if err := in.take("reasoning", &reasoning); err != nil {
		return err
	}
	if in.move("max_output_tokens", "max_tokens"); in.has("max_tokens") {
		var n float64
		if err := json.Unmarshal(in["max_tokens"], &n); err != nil || n < 1 {
			return api.BadRequest("max_output_tokens", "max_output_tokens is %.40s: want a number from 1", in["max_tokens"])
		}
	}
	if in.has("top_logprobs") {
		in.put("logprobs", true)
	}
	for _, name := range []string{"metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls"} {
		delete(in, name)
	}
	return nil
}

// functions: those of the client's are kept, tools of OpenAI's own are not.
func functions(in object) error {
	var list []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description json.RawMessage `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      json.RawMessage `json:"strict"`
	}
	if err := in.take("tools", &list); err != nil {
		return err
	}
	var choice json.RawMessage
	if err := in.take("tool_choice", &choice); err != nil {
		return err
	}
	if len(list) == 0 {
		delete(in, "parallel_tool_calls")
		return nil
	}
	out := make([]any, len(list))
	for i, t := range list {
		if t.Type != "function" {
			return api.BadRequest("tools", "tools[%d] is of the type %.40q, which OpenAI runs itself: only functions can be kept", i, t.Type)
		}
		f := object{}
		f.put("name", t.Name)
		for name, v := range map[string]json.RawMessage{"description": t.Description, "parameters": t.Parameters, "strict": t.Strict} {
			if len(v) > 0 && string(v) != "null" {
				f[name] = v
			}
		}
		out[i] = map[string]any{"type": "function", "function": f}
	}
	in.put("tools", out)
	if len(choice) == 0 {
		return nil
	}
	var word string
	var one struct{ Type, Name string }
	switch {
	case json.Unmarshal(choice, &word) == nil && slices.Contains([]string{"auto", "none", "required"}, word):
		in.put("tool_choice", word)
	case json.Unmarshal(choice, &one) == nil && one.Type == "function":
		in.put("tool_choice", map[string]any{"type": "function", "function": map[string]string{"name": one.Name}})
	default:
		return api.BadRequest("tool_choice", "tool_choice is %.80s: want auto, none, required or a function", choice)
	}
	return nil
}

// textForm is that of the answer.
func textForm(in object) error {
	var text struct {
		Format *struct {
			Type        string          `json:"type"`
			Name        string          `json:"name,omitempty"`
			Description string          `json:"description,omitempty"`
			Schema      json.RawMessage `json:"schema,omitempty"`
			Strict      *bool           `json:"strict,omitempty"`
		} `json:"format"`
	}
	if err := in.take("text", &text); err != nil || text.Format == nil {
		return err
	}
	switch f := text.Format; f.Type {
	case "text":
	case "json_object":
		in.put("response_format", map[string]string{"type": "json_object"})
	case "json_schema":
		in.put("response_format", map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": f.Name, "schema": f.Schema, "strict": f.Strict}})
	default:
		return api.BadRequest("text", "text.format.type is %.40q: want text, json_object or json_schema", f.Type)
	}
	return nil
}

// item is one of the input.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   parts           `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    parts           `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// parts is a text, or parts of content.
type parts []struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Image  string `json:"image_url"`
	Detail string `json:"detail"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *parts) UnmarshalJSON(raw []byte) error {
	type plain parts
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*p = parts{{Type: "input_text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*plain)(p))
}

// text is that of parts that must all be text.
func (p parts) text(where string) (string, error) {
	var b bytes.Buffer
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "reasoning_text", "text":
			b.WriteString(part.Text)
		default:
			return "", api.BadRequest("input", "%s has a part of the type %.40q: only text can be kept there", where, part.Type)
		}
	}
	return b.String(), nil
}

// chat is the parts as content of a chat's.
func (p parts) chat(where string) (any, error) {
	if len(p) == 1 && p[0].Type != "input_image" {
		return p.text(where)
	}
	out := make([]any, 0, len(p))
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "text":
			out = append(out, map[string]any{"type": "text", "text": part.Text})
		case "input_image":
			if part.Image == "" {
				return nil, api.BadRequest("input", "%s has an image without image_url: files are not stored here", where)
			}
			image := map[string]string{"url": part.Image}
			if part.Detail != "" {
				image["detail"] = part.Detail
			}
			out = append(out, map[string]any{"type": "image_url", "image_url": image})
		default:
			return nil, api.BadRequest("input", "%s has a part of the type %.40q: text and images can be kept", where, part.Type)
		}
	}
	return out, nil
}

// items takes instructions and input out of a request, and makes messages of them.
func items(in object) (out []any, err error) {
	var instructions string
	if err := in.take("instructions", &instructions); err != nil {
		return nil, err
	}
	if instructions != "" {
		out = append(out, map[string]any{"role": "system", "content": instructions})
	}
	var text string
	if in.has("input") && json.Unmarshal(in["input"], &text) == nil {
		delete(in, "input")
		return append(out, map[string]any{"role": "user", "content": text}), nil
	}
	var list []item
	if err := in.take("input", &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, api.BadRequest("input", "input is empty: send a text, or items")
	}
	t := turns{out: out}
	for i, it := range list {
		if err := t.add(&it, fmt.Sprintf("input[%d]", i)); err != nil {
			return nil, err
		}
	}
	t.flush()
	return t.out, nil
}

// turns collects what an assistant has done in a row: thoughts, a text and calls are one message of a chat.
type turns struct {
	out     []any
	pending map[string]any // the assistant's message; nil: none is begun
	calls   []any
}

func (t *turns) assistant() map[string]any {
	if t.pending == nil {
		t.pending = map[string]any{"role": "assistant", "content": nil}
	}
	return t.pending
}

func (t *turns) flush() {
	if t.pending == nil {
		return
	}
	if len(t.calls) > 0 {
		t.pending["tool_calls"] = t.calls
	} else if t.pending["content"] == nil {
		t.pending["content"] = ""
	}
	t.out, t.pending, t.calls = append(t.out, t.pending), nil, nil
}

func (t *turns) add(it *item, where string) error {
	switch it.Type {
	case "", "message":
		return t.message(it, where)
	case "function_call":
		t.assistant()
		t.calls = append(t.calls, map[string]any{"id": it.CallID, "type": "function", "function": map[string]string{"name": it.Name, "arguments": it.Arguments}})
	case "function_call_output":
		text, err := it.Output.text(where)
		if err != nil {
			return err
		}
		t.flush()
		t.out = append(t.out, map[string]any{"role": "tool", "tool_call_id": it.CallID, "content": text})
	case "reasoning":
		text, err := it.Content.text(where)
		if err != nil {
			return err
		}
		if len(t.calls) > 0 || t.pending["content"] != nil {
			t.flush() // it begins another turn
		}
		if text != "" {
			t.assistant()["reasoning_content"] = text
		}
	default:
		return api.BadRequest("input", "%s is of the type %.40q: messages, reasoning, function_call and function_call_output can be kept", where, it.Type)
	}
	return nil
}

func (t *turns) message(it *item, where string) error {
	switch it.Role {
	case "assistant":
		text, err := it.Content.text(where)
		if err != nil {
			return err
		}
		if len(t.calls) > 0 || t.pending["content"] != nil {
			t.flush()
		}
		t.assistant()["content"] = text
		return nil
	case "user", "system", "developer":
		content, err := it.Content.chat(where)
		if err != nil {
			return err
		}
		t.flush()
		t.out = append(t.out, map[string]any{"role": it.Role, "content": content})
		return nil
	}
	return api.BadRequest("input", "%s.role is %.40q: want user, assistant, system or developer", where, it.Role)
}
