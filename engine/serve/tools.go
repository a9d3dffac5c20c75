package serve

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
)

const (
	maxTools    = 512
	maxToolName = 128 // bytes
)

type toolSpec struct {
	name       string
	parameters json.RawMessage // a JSON schema; none: no arguments
	loose      bool            // arguments may have other members
}

// toolUse is nil if calls are not parsed.
type toolUse struct {
	tools  []toolSpec
	forced bool
	many   bool
}

func (c *chatRequest) toolUse() (*toolUse, error) {
	if !null(c.Functions) || !null(c.FunctionCall) {
		return nil, badRequest("functions", "functions and function_call are not supported: want tools and tool_choice")
	}
	tools, err := parseTools(c.Tools)
	if err != nil {
		return nil, err
	}
	if tools, err = c.allowed(tools); err != nil {
		return nil, err
	}
	use := &toolUse{tools: tools, many: or(c.ParallelToolCalls, true)}
	choice, name, err := parseToolChoice(c.ToolChoice)
	if err != nil {
		return nil, err
	}
	switch {
	case choice == "none":
		c.Tools = nil
		return nil, nil
	case len(tools) == 0 && choice != "" && choice != "auto":
		return nil, badRequest("tool_choice", "tool_choice asks for a call and there are no tools: want tools, or tool_choice \"none\"")
	case len(tools) == 0:
		return nil, nil
	case choice == "required":
		use.forced = true
	case name != "":
		spec := use.find(name)
		if spec == nil {
			return nil, badRequest("tool_choice", "tool_choice names the function %s, which is not among the tools", quote(name))
		}
		use.forced, use.many, use.tools = true, false, []toolSpec{*spec}
	}
	return use, nil
}

// allowed handles a tool_choice of some tools: the model sees no others.
func (c *chatRequest) allowed(tools []toolSpec) ([]toolSpec, error) {
	var choice struct {
		Type string `json:"type"`
		Some struct {
			Mode  json.RawMessage `json:"mode"`
			Tools []struct {
				Function struct {
					Name string `json:"name"`
				} `json:"function"`
			} `json:"tools"`
		} `json:"allowed_tools"`
	}
	if json.Unmarshal(c.ToolChoice, &choice) != nil || choice.Type != "allowed_tools" {
		return tools, nil
	}
	var all, seen []json.RawMessage
	if !null(c.Tools) {
		if err := json.Unmarshal(c.Tools, &all); err != nil {
			return nil, err // parsed before
		}
	}
	var left []toolSpec
	for i, t := range tools {
		for _, name := range choice.Some.Tools {
			if name.Function.Name == t.name {
				left, seen = append(left, t), append(seen, all[i])
				break
			}
		}
	}
	if len(left) == 0 {
		return nil, badRequest("tool_choice", "tool_choice allows none of the tools")
	}
	raw, err := json.Marshal(seen)
	c.Tools, c.ToolChoice = raw, choice.Some.Mode
	return left, err
}

func (u *toolUse) find(name string) *toolSpec {
	for i := range u.tools {
		if u.tools[i].name == name {
			return &u.tools[i]
		}
	}
	return nil
}

func parseTools(raw json.RawMessage) ([]toolSpec, error) {
	if null(raw) {
		return nil, nil
	}
	var list []struct {
		Type     string `json:"type"`
		Function *struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
			Strict     *bool           `json:"strict"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, badRequest("tools", "tools is a JSON %s, or one of its fields has another type: want an array of {\"type\":\"function\",\"function\":{\"name\":…,\"parameters\":…}}", kindOf(raw))
	}
	if len(list) > maxTools {
		return nil, badRequest("tools", "%d tools: want at most %d", len(list), maxTools)
	}
	var tools []toolSpec
	for i, t := range list {
		switch {
		case t.Type != "function" || t.Function == nil:
			return nil, badRequest("tools.type", "tool %d has type %s: want \"function\" and an object function", i, quote(t.Type))
		case !validToolName(t.Function.Name):
			return nil, badRequest("tools.function.name", "tool %d has the name %s: want 1 to %d letters, digits, _, - and .", i, quote(t.Function.Name), maxToolName)
		case (&toolUse{tools: tools}).find(t.Function.Name) != nil:
			return nil, badRequest("tools.function.name", "two tools have the name %s", quote(t.Function.Name))
		case !describesObject(t.Function.Parameters):
			return nil, badRequest("tools.function.parameters", "the parameters of the tool %s are no JSON schema of an object: want {\"type\":\"object\",\"properties\":…}, or leave them out for no arguments", quote(t.Function.Name))
		}
		tools = append(tools, toolSpec{t.Function.Name, t.Function.Parameters, t.Function.Strict != nil && !*t.Function.Strict})
	}
	return tools, nil
}

func describesObject(parameters json.RawMessage) bool {
	if null(parameters) {
		return true
	}
	var schema map[string]any
	if json.Unmarshal(parameters, &schema) != nil {
		return false
	}
	kind, said := schema["type"]
	list, several := kind.([]any)
	return !said || kind == "object" || several && slices.Contains(list, any("object"))
}

func validToolName(name string) bool {
	return name != "" && len(name) <= maxToolName && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) < 0
}

func parseToolChoice(raw json.RawMessage) (word, name string, err error) {
	if null(raw) {
		return "", "", nil
	}
	if kindOf(raw) == "string" && json.Unmarshal(raw, &word) == nil {
		switch word {
		case "none", "auto", "required":
			return word, "", nil
		case "any": // Mistral's
			return "required", "", nil
		}
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) == nil && named.Type == "function" && named.Function.Name != "" {
		return "named", named.Function.Name, nil
	}
	return "", "", badRequest("tool_choice", "tool_choice is %s: want \"none\", \"auto\", \"required\" or {\"type\":\"function\",\"function\":{\"name\":…}}", quote(string(raw)))
}

func (u *toolUse) constraint(f *toolFormat, other *constraint) *constraint {
	var key strings.Builder
	key.WriteString(f.name)
	for _, t := range u.tools {
		key.WriteString("\x00" + t.name + "\x00" + compactJSON(t.parameters) + "\x00" + strconv.FormatBool(t.loose))
	}
	w := &constraint{param: "tools", kind: "tools"}
	if u.many {
		w.kind = "tools, many"
	}
	if other != nil {
		w.param, w.kind = other.param, w.kind+", or "+other.kind
		key.WriteString("\x00" + other.source)
	}
	w.source = key.String()
	w.form = func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		var calls []constrain.Form
		for _, t := range u.tools {
			arguments := constrain.Text("{}")
			if !null(t.parameters) {
				read := constrain.Strict
				if t.loose {
					read = constrain.Schema
				}
				var err error
				if arguments, err = read(ctx, b, objectSchema(t.parameters)); err != nil {
					if known, ok := errors.AsType[*constrain.FormError](err); ok {
						err = &constrain.FormError{Message: "the parameters of the tool " + quote(t.name) + ": " + known.Message}
					}
					return constrain.Form{}, err
				}
			}
			calls = append(calls, f.call(t.name, arguments))
		}
		form := f.answer(constrain.AnyOf(calls...), u.many)
		if other == nil {
			return form, nil
		}
		text, err := other.form(ctx, b)
		return constrain.AnyOf(text, form), err
	}
	return w
}

func objectSchema(parameters json.RawMessage) json.RawMessage {
	var top map[string]json.RawMessage
	if json.Unmarshal(parameters, &top) != nil || top == nil {
		return parameters
	}
	top["type"] = json.RawMessage(`"object"`)
	out, err := json.Marshal(top)
	if err != nil {
		return parameters
	}
	return out
}
