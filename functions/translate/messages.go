package translate

import (
	"encoding/json"
	"math"

	"github.com/rouse-dev/rouse/api"
)

// Fields of Anthropic's that nothing here can do.
var refusedOfMessages = map[string]string{
	"container":     "containers are a service of Anthropic's",
	"mcp_servers":   "MCP servers are called by a service of Anthropic's",
	"diagnostics":   "answers are not explained here",
	"inference_geo": "where a model runs is its function's to declare",
}

// messagesNames are those of fields that a chat completion has by another name.
var messagesNames = map[string]string{"stop": "stop_sequences", "response_format": "output_config", "thinking_token_budget": "thinking", "reasoning_effort": "output_config"}

// fromMessages makes the body of a chat completion out of one of messages. count asks for the number of tokens only.
func fromMessages(body []byte, count bool) ([]byte, error) {
	in, err := read(body, refusedOfMessages)
	if err != nil {
		return nil, err
	}
	messages, err := conversation(in)
	if err != nil {
		return nil, err
	}
	in.put("messages", messages)
	for _, step := range []func(object) error{length, thinking, tools, form, plain} {
		if err := step(in); err != nil {
			return nil, err
		}
	}
	if !count && !in.has("max_tokens") { // Anthropic's API must have it
		return nil, api.BadRequest("max_tokens", "max_tokens is missing: want the most tokens that the answer may have")
	}
	if count {
		in.put("max_tokens", 1)
		delete(in, "stream")
		delete(in, "stream_options")
	}
	return json.Marshal(in)
}

// length is max_tokens.
func length(in object) error {
	if in.has("max_tokens") {
		var n float64
		if err := json.Unmarshal(in["max_tokens"], &n); err != nil || n < 1 {
			return api.BadRequest("max_tokens", "max_tokens is %.40s: want a number from 1", in["max_tokens"])
		}
	}
	return nil
}

// thinking switches a model's thoughts on, with a limit, or off. Whether a model thinks that isn't told is its template's to say.
func thinking(in object) error {
	var t struct {
		Type    string
		Budget  *float64 `json:"budget_tokens"`
		Display string
	}
	if err := in.take("thinking", &t); err != nil {
		return err
	}
	if t.Display != "" && t.Display != "summarized" && t.Display != "omitted" {
		return api.BadRequest("thinking", "thinking.display is %.40q: want summarized or omitted", t.Display)
	}
	switch t.Type {
	case "", "adaptive":
		return nil
	case "disabled":
		return in.template("enable_thinking", false)
	case "enabled":
		var most float64
		_ = json.Unmarshal(in["max_tokens"], &most) // it was looked at, or is not there
		switch {
		case t.Budget == nil || *t.Budget < 1 || *t.Budget != math.Trunc(*t.Budget) || *t.Budget > 1<<40:
			return api.BadRequest("thinking", "thinking.budget_tokens is missing or no whole number from 1")
		case most > 0 && *t.Budget >= most:
			return api.BadRequest("thinking", "thinking.budget_tokens is %v, which must be less than max_tokens, %v", *t.Budget, most)
		}
		in.put("thinking_token_budget", int64(*t.Budget))
		return in.template("enable_thinking", true)
	}
	return api.BadRequest("thinking", "thinking.type is %.40q: want enabled, disabled or adaptive", t.Type)
}

// omits says whether a request wants thoughts to be left out of its answer.
func omits(body []byte) bool {
	var in struct{ Thinking struct{ Display string } }
	return json.Unmarshal(body, &in) == nil && in.Thinking.Display == "omitted"
}

// tools: functions are kept, tools of Anthropic's own are not.
func tools(in object) error {
	var list []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"input_schema"`
		Strict      *bool           `json:"strict"`
	}
	if err := in.take("tools", &list); err != nil {
		return err
	}
	var choice struct {
		Type, Name string
		Serial     bool `json:"disable_parallel_tool_use"`
	}
	if err := in.take("tool_choice", &choice); err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	out := make([]any, len(list))
	for i, t := range list {
		if t.Type != "" && t.Type != "custom" {
			return api.BadRequest("tools", "tools[%d] is of the type %.40q, which Anthropic runs itself: only tools with an input_schema can be kept", i, t.Type)
		}
		f := map[string]any{"name": t.Name}
		if t.Description != "" {
			f["description"] = t.Description
		}
		if len(t.Schema) > 0 {
			f["parameters"] = t.Schema
		}
		if t.Strict != nil {
			f["strict"] = *t.Strict
		}
		out[i] = map[string]any{"type": "function", "function": f}
	}
	in.put("tools", out)
	switch choice.Type {
	case "":
	case "auto", "none":
		in.put("tool_choice", choice.Type)
	case "any":
		in.put("tool_choice", "required")
	case "tool":
		in.put("tool_choice", map[string]any{"type": "function", "function": map[string]string{"name": choice.Name}})
	default:
		return api.BadRequest("tool_choice", "tool_choice.type is %.40q: want auto, any, tool or none", choice.Type)
	}
	if choice.Serial {
		in.put("parallel_tool_calls", false)
	}
	return nil
}

// form is that of the answer: output_config.format, and output_format as it was called before.
func form(in object) error {
	type format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	var config struct {
		Format *format `json:"format"`
		Effort string  `json:"effort"`
	}
	if err := in.take("output_config", &config); err != nil {
		return err
	}
	switch config.Effort {
	case "":
	case "low", "medium", "high", "xhigh", "max":
		if err := in.template("reasoning_effort", config.Effort); err != nil {
			return err
		}
	default:
		return api.BadRequest("output_config", "output_config.effort is %.40q: want low, medium, high, xhigh or max", config.Effort)
	}
	if err := in.take("output_format", &config.Format); err != nil || config.Format == nil {
		return err
	}
	if config.Format.Type != "json_schema" {
		return api.BadRequest("output_config", "the format's type is %.40q: want json_schema", config.Format.Type)
	}
	in.put("response_format", map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": config.Format.Schema}})
	return nil
}

// plain renames what has another name, and drops what says nothing to a model server.
func plain(in object) error {
	var stops []string
	if err := in.take("stop_sequences", &stops); err != nil {
		return err
	}
	if len(stops) > 0 {
		in.put("stop", stops)
	}
	var who struct {
		User string `json:"user_id"`
	}
	if err := in.take("metadata", &who); err != nil {
		return err
	}
	if who.User != "" {
		in.put("user", who.User)
	}
	if err := in.drop("service_tier", "auto", "standard_only"); err != nil {
		return err
	}
	if err := in.drop("speed", "standard"); err != nil {
		return err
	}
	for _, name := range []string{"cache_control", "user_profile_id", "workspace_id"} { // what has been computed is used again without the first; the others are for Anthropic's bills
		delete(in, name)
	}
	return in.streamed()
}
