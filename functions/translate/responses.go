package translate

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// Fields of a request for a response that nothing here can do.
var refusedOfResponses = map[string]string{
	"previous_response_id": "responses are not stored here: send the conversation as input",
	"conversation":         "conversations are not stored here: send the conversation as input",
	"prompt":               "prompts are not stored here: send the text as input or instructions",
	"context_management":   "contexts are not edited here: send what is to be read",
	"moderation":           "texts are not judged here",
}

// fromResponses makes the body of a chat completion out of one of responses.
func fromResponses(body []byte) ([]byte, shape, error) {
	in, err := read(body, refusedOfResponses)
	if err != nil {
		return nil, shape{}, err
	}
	said := told(in)
	if said.spaces, err = spaces(in); err != nil {
		return nil, shape{}, err
	}
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
		names:  responsesNames,
		scored: true,
		answer: whole(func(c *completion) any { return said.response(c) }),
		events: func(out *bytes.Buffer) events { return &responseEvents{text: out, response: said} },
	}, err
}

// responsesNames are those of fields that a chat completion has by another name.
var responsesNames = map[string]string{"max_tokens": "max_output_tokens", "messages": "input", "messages.role": "input", "response_format": "text", "reasoning_effort": "reasoning", "logprobs": "include"}

// told are the fields of a request that its response tells again.
func told(in object) response {
	r := response{Object: "response", Output: []any{}, Tools: toldTools(in), ToolChoice: json.RawMessage(`"auto"`), Parallel: json.RawMessage("true"),
		Text: toldText(in), Metadata: json.RawMessage("{}"), Truncation: "disabled", Tier: "default"}
	for name, to := range map[string]struct {
		field *json.RawMessage
		none  string // what OpenAI says where the request says nothing; empty: what is there
	}{
		"instructions": {&r.Instructions, "null"}, "max_output_tokens": {&r.MaxTokens, "null"}, "user": {&r.User, "null"},
		"temperature": {&r.Temperature, "1"}, "top_p": {&r.TopP, "1"}, "presence_penalty": {&r.Presence, "0"}, "frequency_penalty": {&r.Frequency, "0"},
		"tool_choice": {&r.ToolChoice, ""}, "parallel_tool_calls": {&r.Parallel, ""}, "metadata": {&r.Metadata, ""}, "reasoning": {&r.Reasoning, `{"effort":null,"summary":null}`},
		"top_logprobs": {&r.TopLogprobs, "0"}, "max_tool_calls": {&r.MaxCalls, "null"}, "prompt_cache_key": {&r.CacheKey, "null"}, "safety_identifier": {&r.Safety, "null"},
	} {
		switch {
		case in.has(name):
			*to.field = in[name]
		case to.none != "":
			*to.field = json.RawMessage(to.none)
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
		if string(t["type"]) != `"function"` {
			continue
		}
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
	if err := included(in); err != nil {
		return err
	}
	if err := in.drop("truncation", "disabled"); err != nil {
		return err
	}
	if err := reasoning(in); err != nil {
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
	for _, name := range []string{"metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "max_tool_calls"} {
		delete(in, name)
	}
	return nil
}

// included is what an answer is to have besides. Nothing is encrypted: thoughts are in the items.
func included(in object) error {
	var include []string
	if err := in.take("include", &include); err != nil {
		return err
	}
	for _, what := range include {
		switch what {
		case "reasoning.encrypted_content":
		case "message.output_text.logprobs":
			in.put("logprobs", true)
		default:
			return api.BadRequest("include", "include %.60q can't be kept: leave it out", what)
		}
	}
	return nil
}

// reasoning is how much a model is to think. It tells what it thinks itself, so that a summary is not made.
func reasoning(in object) error {
	var r struct {
		Effort, Summary, Context, Mode string
		Older                          string `json:"generate_summary"`
	}
	if err := in.take("reasoning", &r); err != nil {
		return err
	}
	for name, one := range map[string]struct{ got, want string }{
		"summary": {r.Summary, "auto"}, "generate_summary": {r.Older, "auto"}, "context": {r.Context, "auto"}, "mode": {r.Mode, "standard"},
	} {
		if one.got != "" && one.got != one.want {
			return api.BadRequest("reasoning", "reasoning.%s is %.40q, which can't be kept here: want %s", name, one.got, one.want)
		}
	}
	if r.Effort != "" {
		in.put("reasoning_effort", r.Effort)
	}
	return nil
}

// functions: those of the client's are kept, tools of OpenAI's own are not.
func functions(in object) error {
	var list []tool
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
	allowed, choice, err := allowedTools(choice)
	if err != nil {
		return err
	}
	var out []any
	for _, t := range flat(list) {
		if allowed != nil && !slices.Contains(allowed, t.Name) {
			continue
		}
		f := object{}
		f.put("name", t.Name)
		for name, v := range map[string]json.RawMessage{"description": t.Description, "parameters": t.Parameters, "strict": t.Strict} {
			if len(v) > 0 && string(v) != "null" {
				f[name] = v
			}
		}
		out = append(out, map[string]any{"type": "function", "function": f})
	}
	if len(out) == 0 {
		return api.BadRequest("tool_choice", "tool_choice allows none of the tools")
	}
	in.put("tools", out)
	if len(choice) == 0 {
		return nil
	}
	var word string
	var one called
	switch {
	case json.Unmarshal(choice, &word) == nil && slices.Contains([]string{"auto", "none", "required"}, word):
		in.put("tool_choice", word)
	case json.Unmarshal(choice, &one) == nil && one.Type == "function":
		in.put("tool_choice", map[string]any{"type": "function", "function": map[string]string{"name": one.whole()}})
	default:
		return api.BadRequest("tool_choice", "tool_choice is %.80s: want auto, none, required or a function", choice)
	}
	return nil
}

// allowedTools are the names that a choice leaves of the tools, and the choice among them; nil: all.
func allowedTools(choice json.RawMessage) (names []string, among json.RawMessage, err error) {
	var some struct {
		Type  string
		Mode  json.RawMessage
		Tools []called
	}
	if json.Unmarshal(choice, &some) != nil || some.Type != "allowed_tools" {
		return nil, choice, nil
	}
	names = []string{}
	for _, t := range some.Tools {
		if t.Type != "function" {
			return nil, nil, api.BadRequest("tool_choice", "tool_choice allows a tool of the type %.40q: only functions can be kept", t.Type)
		}
		names = append(names, t.whole())
	}
	return names, some.Mode, nil
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
		Verbosity string `json:"verbosity"`
	}
	if err := in.take("text", &text); err != nil {
		return err
	}
	if text.Verbosity != "" && text.Verbosity != "medium" {
		return api.BadRequest("text", "text.verbosity is %.40q, which can't be kept here: say in the instructions how long the answer is to be", text.Verbosity)
	}
	if text.Format == nil {
		return nil
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
