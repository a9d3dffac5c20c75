package serve

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// xmlCall turns a call of Qwen3-Coder and Qwen3.5 into JSON:
//
//	<function=NAME>
//	<parameter=KEY>
//	value, of one or many lines
//	</parameter>
//	</function>
//
// There is no quoting: a value ends at the first end tag.
type xmlCall struct {
	use  *toolUse
	name string // "" before <function=…>
	key  string // "" outside a parameter
	some bool   // a parameter has ended
	held []byte // since the last tag
}

// write returns the JSON that b makes certain; false if this is no such call.
func (x *xmlCall) write(b byte) (text string, ok bool) {
	const end = "</parameter>"
	x.held = append(x.held, b)
	if x.key != "" {
		value, over := bytes.CutSuffix(x.held, []byte(end))
		if !over {
			return "", true
		}
		text = quoted(x.key) + ": " + x.value(string(value))
		if x.some {
			text = ", " + text
		}
		x.key, x.some, x.held = "", true, x.held[:0]
		return text, true
	}
	tag := strings.TrimLeft(string(x.held), " \t\r\n")
	if !strings.HasSuffix(tag, ">") {
		return "", (tag == "" || tag[0] == '<') && len(tag) < 4*maxToolName
	}
	x.held = x.held[:0]
	tag = tag[:len(tag)-1]
	name, function := strings.CutPrefix(tag, "<function=")
	key, parameter := strings.CutPrefix(tag, "<parameter=")
	switch {
	case function && x.name == "" && name != "":
		x.name = name
		return `{"name": ` + quoted(name) + `, "arguments": {`, true
	case parameter && x.name != "" && key != "":
		x.key = key
		return "", true
	case tag == "</function" && x.name != "":
		return "}}", true
	}
	return "", false
}

// value returns a parameter's value as JSON. The line breaks at its tags are dropped. It is text if the schema says
// string, or if it is neither JSON nor a constant of Python.
func (x *xmlCall) value(text string) string {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")
	if types := x.types(); slices.Contains(types, "string") && !(text == "null" && slices.Contains(types, "null")) {
		return quoted(text)
	}
	if constant, known := map[string]string{"True": "true", "False": "false", "None": "null"}[text]; known {
		return constant
	}
	if json.Valid([]byte(text)) {
		return strings.TrimSpace(text)
	}
	return quoted(text)
}

// types returns the schema's types of the parameter.
func (x *xmlCall) types() []string {
	var schema struct {
		Properties map[string]struct{ Type json.RawMessage }
	}
	if t := x.use.find(x.name); t == nil || null(t.parameters) || json.Unmarshal(t.parameters, &schema) != nil {
		return nil
	}
	var one string
	var many []string
	if said := schema.Properties[x.key].Type; json.Unmarshal(said, &one) == nil {
		return []string{one}
	} else if json.Unmarshal(said, &many) != nil {
		return nil
	}
	return many
}

func quoted(text string) string { return string(appendString(nil, text)) }
