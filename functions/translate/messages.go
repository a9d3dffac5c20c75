package translate

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

var refusedOfMessages = map[string]string{
	"container":     "containers are a service of Anthropic's",
	"mcp_servers":   "MCP servers are called by a service of Anthropic's",
	"diagnostics":   "answers are not explained here",
	"inference_geo": "where a model runs is its function's to declare",
}

var messagesNames = map[string]string{"stop": "stop_sequences", "response_format": "output_config", "thinking_token_budget": "thinking", "reasoning_effort": "output_config"}

// pingMessage keeps Anthropic's stream open.
const pingMessage = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

func askMessages(_ *Handler, in *request) shape {
	silent := in.messages()
	if !in.has("max_tokens") { // Anthropic's API requires it
		in.refuse("max_tokens", "max_tokens is missing: want the most tokens that the answer may have")
	}
	return shape{names: messagesNames, ping: pingMessage, style: api.StreamMessages,
		answer: whole(func(c *completion) any { return newMessage(c, silent) }),
		events: func(out *output) events { return newMessageEvents(out, silent) }}
}

// askCount asks for one token.
func askCount(_ *Handler, in *request) shape {
	in.messages()
	in.put("max_tokens", 1)
	in.remove("stream", "stream_options")
	return shape{names: messagesNames, answer: whole(func(c *completion) any { return map[string]int{"input_tokens": c.Usage.Prompt} })}
}

// messages translates the fields; silent: the answer leaves out the thoughts.
func (r *request) messages() (silent bool) {
	r.refuseFields(refusedOfMessages)
	r.conversation()
	r.checkMaxTokens("max_tokens")
	silent = r.thinking()
	r.messageTools()
	r.outputConfig()
	var stops []string
	if r.take("stop_sequences", &stops); len(stops) > 0 {
		r.put("stop", stops)
	}
	var metadata struct {
		User string `json:"user_id"`
	}
	if r.take("metadata", &metadata); metadata.User != "" {
		r.put("user", metadata.User)
	}
	r.drop("service_tier", "auto", "standard_only")
	r.drop("speed", "standard")
	r.remove("cache_control", "user_profile_id", "workspace_id") // prompts are always cached; the others are for Anthropic's bills
	r.setStreamOptions()
	return silent
}

// thinking switches thoughts on, with a limit, or off, or leaves them to the template.
func (r *request) thinking() (silent bool) {
	var t struct {
		Type    string
		Budget  float64 `json:"budget_tokens"`
		Display string
	}
	r.take("thinking", &t)
	if !slices.Contains([]string{"", "summarized", "omitted"}, t.Display) {
		r.refuse("thinking", "thinking.display is %.40q: want summarized or omitted", t.Display)
	}
	switch t.Type {
	case "", "adaptive":
	case "disabled":
		r.setTemplate("enable_thinking", false)
	case "enabled":
		var most float64
		_ = json.Unmarshal(r.object["max_tokens"], &most) // checked, or missing
		switch {
		case t.Budget < 1 || t.Budget != math.Trunc(t.Budget) || t.Budget > 1<<40:
			r.refuse("thinking", "thinking.budget_tokens is missing or no whole number from 1")
		case most > 0 && t.Budget >= most:
			r.refuse("thinking", "thinking.budget_tokens is %v, which must be less than max_tokens, %v", t.Budget, most)
		}
		r.put("thinking_token_budget", int64(t.Budget))
		r.setTemplate("enable_thinking", true)
	default:
		r.refuse("thinking", "thinking.type is %.40q: want enabled, disabled or adaptive", t.Type)
	}
	return t.Display == "omitted"
}

// messageTools refuses Anthropic's own tools.
func (r *request) messageTools() {
	var list []struct {
		Type        string
		Name        string
		Description string
		Schema      json.RawMessage `json:"input_schema"`
		Strict      *bool
	}
	var choice struct {
		Type, Name string
		Serial     bool `json:"disable_parallel_tool_use"`
	}
	r.take("tools", &list)
	r.take("tool_choice", &choice)
	if len(list) == 0 {
		return
	}
	out := make([]any, len(list))
	for i, t := range list {
		if t.Type != "" && t.Type != "custom" {
			r.refuse("tools", "tools[%d] is of the type %.40q, which Anthropic runs itself: only tools with an input_schema can be kept", i, t.Type)
		}
		out[i] = chatTool(struct {
			Type        string          `json:"-"`
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Schema      json.RawMessage `json:"parameters,omitempty"`
			Strict      *bool           `json:"strict,omitempty"`
		}(t))
	}
	r.put("tools", out)
	switch choice.Type {
	case "":
	case "auto", "none":
		r.put("tool_choice", choice.Type)
	case "any":
		r.put("tool_choice", "required")
	case "tool":
		r.put("tool_choice", chooseTool(choice.Name))
	default:
		r.refuse("tool_choice", "tool_choice.type is %.40q: want auto, any, tool or none", choice.Type)
	}
	if choice.Serial {
		r.put("parallel_tool_calls", false)
	}
}

// outputConfig also takes output_format, the older name of its format.
func (r *request) outputConfig() {
	var config struct {
		Effort string
		Format *struct {
			Type   string
			Schema json.RawMessage
		}
	}
	r.take("output_config", &config)
	switch config.Effort {
	case "":
	case "low", "medium", "high", "xhigh", "max":
		r.setTemplate("reasoning_effort", config.Effort)
	default:
		r.refuse("output_config", "output_config.effort is %.40q: want low, medium, high, xhigh or max", config.Effort)
	}
	r.take("output_format", &config.Format)
	if f := config.Format; f != nil {
		if f.Type != "json_schema" {
			r.refuse("output_config", "the format's type is %.40q: want json_schema", f.Type)
		}
		r.put("response_format", jsonSchema("answer", f.Schema, true))
	}
}

const clearThinking = "clear_thinking_20251015"

// editContext refuses edits from a number of tokens on, which are not counted before a model reads them.
func (r *request) editContext(messages []spoken) {
	var management struct {
		Edits []struct {
			Type string
			Keep json.RawMessage
		}
	}
	r.take("context_management", &management)
	for i, e := range management.Edits {
		if e.Type != clearThinking {
			r.refuse("context_management", "context_management.edits[%d] is of the type %.40q, which can't be kept: only %s is done here", i, e.Type, clearThinking)
		}
		keep, valid := thinkingTurns(e.Keep)
		if !valid {
			r.refuse("context_management", "context_management.edits[%d].keep is %.60s: want \"all\" or {\"type\": \"thinking_turns\", \"value\": a number from 1}", i, e.Keep)
		}
		keepThoughts(messages, keep)
	}
}

// thinkingTurns returns how many answers keep their thoughts, by default one.
func thinkingTurns(raw json.RawMessage) (n int, valid bool) {
	var keep any
	_ = json.Unmarshal(raw, &keep) // it is JSON, or missing
	turns, _ := keep.(map[string]any)
	value, _ := turns["value"].(float64)
	switch {
	case keep == nil:
		return 1, true
	case keep == "all" || turns["type"] == "all":
		return math.MaxInt, true
	}
	return int(min(value, 1<<30)), turns["type"] == "thinking_turns" && value >= 1 && value == math.Trunc(value)
}

// keepThoughts leaves the thoughts of the last keep answers that have any.
func keepThoughts(messages []spoken, keep int) {
	isThought := func(b block) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }
	for i := range slices.Backward(messages) {
		m := &messages[i]
		switch {
		case m.Role != "assistant" || !slices.ContainsFunc(m.Content, isThought):
		case keep > 0:
			keep--
		default:
			m.Content = slices.DeleteFunc(m.Content, isThought)
		}
	}
}
