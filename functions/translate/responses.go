package translate

import (
	"encoding/json"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

var refusedOfResponses = map[string]string{
	"previous_response_id": "responses are not stored here: send the conversation as input",
	"conversation":         "conversations are not stored here: send the conversation as input",
	"prompt":               "prompts are not stored here: send the text as input or instructions",
	"context_management":   "contexts are not edited here: send what is to be read",
	"moderation":           "texts are not judged here",
}

var responsesNames = map[string]string{"max_tokens": "max_output_tokens", "messages": "input", "messages.role": "input", "response_format": "text", "reasoning_effort": "reasoning", "logprobs": "include"}

func askResponses(_ *Handler, in *request) shape {
	in.refuseFields(refusedOfResponses)
	response := newResponse(in)
	in.functions(response.spaces)
	in.input()
	for _, name := range []string{"store", "background"} {
		var on bool
		if in.take(name, &on); on {
			in.refuse(name, "%s can't be kept: responses are not stored here, leave it out", name)
		}
	}
	in.include()
	in.drop("truncation", "disabled")
	in.reasoning()
	if in.has("max_output_tokens") {
		in.object["max_tokens"] = in.object["max_output_tokens"]
	}
	in.checkMaxTokens("max_output_tokens")
	if in.has("top_logprobs") {
		in.put("logprobs", true)
	}
	in.remove("max_output_tokens", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "max_tool_calls")
	in.textFormat()
	in.setStreamOptions()
	return shape{names: responsesNames, scored: true, style: api.StreamResponses, answer: whole(response.whole),
		events: func(out *output) events { return newResponseEvents(out, response) }}
}

// include: nothing is encrypted, since thoughts are in the items.
func (r *request) include() {
	var include []string
	r.take("include", &include)
	for _, what := range include {
		switch what {
		case "reasoning.encrypted_content":
		case "message.output_text.logprobs":
			r.put("logprobs", true)
		default:
			r.refuse("include", "include %.60q can't be kept: leave it out", what)
		}
	}
}

// reasoning: no summary is made, since the thoughts are in the answer.
func (r *request) reasoning() {
	var of struct {
		Effort, Summary, Context, Mode string
		Older                          string `json:"generate_summary"`
	}
	r.take("reasoning", &of)
	r.allow("reasoning", "reasoning.summary", of.Summary, "auto")
	r.allow("reasoning", "reasoning.generate_summary", of.Older, "auto")
	r.allow("reasoning", "reasoning.context", of.Context, "auto")
	r.allow("reasoning", "reasoning.mode", of.Mode, "standard")
	if of.Effort != "" {
		r.put("reasoning_effort", of.Effort)
	}
}

// tool is a function or a namespace of functions; without a type, a chat completion's function.
type tool struct {
	Type        string           `json:"type,omitempty"`
	Name        string           `json:"name"`
	Description *json.RawMessage `json:"description,omitempty"`
	Parameters  *json.RawMessage `json:"parameters,omitempty"`
	Strict      *json.RawMessage `json:"strict,omitempty"`
	Tools       []tool           `json:"tools,omitempty"`
}

type called struct{ Type, Name, Namespace string }

// whole returns the name in a chat completion, which has no namespaces.
func (c called) whole() string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Namespace + "__" + c.Name
}

// functions adds them to spaces by their whole names. It refuses OpenAI's own tools.
func (r *request) functions(spaces map[string]called) {
	var list []tool
	r.take("tools", &list)
	var choice json.RawMessage
	r.take("tool_choice", &choice)
	if len(list) == 0 {
		r.remove("parallel_tool_calls")
		return
	}
	allowed, choice := r.allowedTools(choice)
	var out []any
	for _, t := range r.flatTools(list, spaces) {
		if allowed == nil || slices.Contains(allowed, t.Name) {
			out = append(out, chatTool(t))
		}
	}
	if len(out) == 0 {
		r.refuse("tool_choice", "tool_choice allows none of the tools")
	}
	r.put("tools", out)
	var word string
	var one called
	switch {
	case len(choice) == 0:
	case json.Unmarshal(choice, &word) == nil && slices.Contains([]string{"auto", "none", "required"}, word):
		r.put("tool_choice", word)
	case json.Unmarshal(choice, &one) == nil && one.Type == "function":
		r.put("tool_choice", chooseTool(one.whole()))
	default:
		r.refuse("tool_choice", "tool_choice is %.80s: want auto, none, required or a function", choice)
	}
}

func (r *request) flatTools(list []tool, spaces map[string]called) (flat []tool) {
	add := func(t tool, space string) {
		name := called{Name: t.Name, Namespace: space}
		t.Name = name.whole()
		if _, twice := spaces[t.Name]; twice {
			r.refuse("tools", "two tools are called %.100q", t.Name)
		}
		spaces[t.Name] = name
		t.Type, t.Tools = "", nil
		flat = append(flat, t)
	}
	for i, t := range list {
		switch t.Type {
		case "function":
			add(t, "")
		case "namespace":
			for k, f := range t.Tools {
				if f.Type != "function" {
					r.refuse("tools", "tools[%d].tools[%d] is of the type %.40q: only functions can be kept", i, k, f.Type)
				}
				add(f, t.Name)
			}
		case "custom":
			r.refuse("tools", "tools[%d] is a custom tool, whose input is free text: only functions can be kept, make it a function with one parameter", i)
		default:
			r.refuse("tools", "tools[%d] is of the type %.40q, which OpenAI runs itself: only functions and namespaces of them can be kept, leave it out", i, t.Type)
		}
	}
	return flat
}

// allowedTools returns the whole names of allowed tools (nil: all), and the choice among them.
func (r *request) allowedTools(choice json.RawMessage) (names []string, among json.RawMessage) {
	var some struct {
		Type  string
		Mode  json.RawMessage
		Tools []called
	}
	if json.Unmarshal(choice, &some) != nil || some.Type != "allowed_tools" {
		return nil, choice
	}
	names = []string{}
	for _, t := range some.Tools {
		if t.Type != "function" {
			r.refuse("tool_choice", "tool_choice allows a tool of the type %.40q: only functions can be kept", t.Type)
		}
		names = append(names, t.whole())
	}
	return names, some.Mode
}

func (r *request) textFormat() {
	var text struct {
		Format *struct {
			Type   string
			Name   string
			Schema json.RawMessage
			Strict *bool
		}
		Verbosity string
	}
	r.take("text", &text)
	if text.Verbosity != "" && text.Verbosity != "medium" {
		r.refuse("text", "text.verbosity is %.40q, which can't be kept here: say in the instructions how long the answer is to be", text.Verbosity)
	}
	f := text.Format
	if f == nil {
		return
	}
	switch f.Type {
	case "text":
	case "json_object":
		r.put("response_format", jsonObject)
	case "json_schema":
		r.put("response_format", jsonSchema(f.Name, f.Schema, f.Strict))
	default:
		r.refuse("text", "text.format.type is %.40q: want text, json_object or json_schema", f.Type)
	}
}
