package serve

import (
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

type toolFormat struct {
	name  string
	token int32 // the control token before calls; -1: begin is text
	// begin and end surround calls; "": an answer that begins as JSON is a call.
	begin, end string
	arguments  string // the member's name
	shows      string // text of a chat template that has begin too
	xml        bool
	list       bool // a list of calls, or name{…} for each, follows begin
	shortIDs   bool // the template wants ids of nine letters and digits
	harmony    *harmony
}

// By vLLM's names of their parsers.
var toolFormats = []toolFormat{
	{name: "harmony", begin: "<|channel|>", arguments: "arguments"},                                                          // gpt-oss
	{name: "qwen3_coder", begin: "<tool_call>", end: "</tool_call>", arguments: "arguments", shows: "<function=", xml: true}, // Qwen3-Coder, Qwen 3.5
	{name: "hermes", begin: "<tool_call>", end: "</tool_call>", arguments: "arguments"},                                      // Hermes, Qwen 2.5 and 3
	{name: "mistral", begin: "[TOOL_CALLS]", arguments: "arguments", list: true, shortIDs: true},                             // Mistral
	{name: "llama3_json", begin: "<|python_tag|>", arguments: "parameters"},                                                  // Llama 3.1 and later
	{name: "json", arguments: "arguments"},                                                                                   // all others
}

var toolParsers = []string{"", "auto", "qwen3_coder", "hermes", "mistral", "llama3_json", "json"}

// "" and "auto" look into the chat template.
func newToolFormat(name, template string, tok *tokenizer.Tokenizer, h *harmony) *toolFormat {
	for i, f := range toolFormats {
		if f.harmony = h; f.name == "harmony" && h == nil {
			continue
		}
		last := i == len(toolFormats)-1
		if name == f.name || (name == "" || name == "auto") && (last || strings.Contains(template, f.begin) && strings.Contains(template, f.shows)) {
			if f.token = -1; f.begin != "" {
				f.token = controlToken(tok, f.begin)
			}
			return &f
		}
	}
	return nil
}

func controlToken(tok *tokenizer.Tokenizer, text string) int32 {
	ids := tok.Encode(text, true)
	if len(ids) == 1 && len(tok.Piece(ids[0])) == 0 {
		return ids[0]
	}
	return -1
}

func (f *toolFormat) marker() constrain.Form {
	if f.token >= 0 {
		return constrain.Token(f.token)
	}
	return constrain.Text(f.begin)
}

func (f *toolFormat) call(name string, arguments constrain.Form) constrain.Form {
	if f.harmony != nil {
		return f.harmony.call(name, arguments)
	}
	return constrain.Sequence(constrain.Text(`{"name": "`+name+`", "`+f.arguments+`": `), arguments, constrain.Text("}"))
}

// text is a call as the model writes it.
func (f *toolFormat) text(name, arguments string) string {
	call := `{"name": "` + name + `", "` + f.arguments + `": ` + arguments + "}"
	switch {
	case f.list:
		return f.begin + "[" + call + "]"
	case f.end != "":
		return f.begin + "\n" + call + "\n" + f.end
	}
	return call
}

func (f *toolFormat) answer(call constrain.Form, many bool) constrain.Form {
	if f.harmony != nil { // a call ends the answer
		return call
	}
	most := 0
	if many {
		most = -1
	}
	more := func(between string, call constrain.Form) constrain.Form {
		return constrain.Repeat(constrain.Sequence(constrain.Text(between), call), 0, most)
	}
	switch f.name {
	case "hermes", "qwen3_coder": // an XML value could not be held to its schema
		one := constrain.Sequence(f.marker(), constrain.Text("\n"), call, constrain.Text("\n"+f.end))
		return constrain.Sequence(one, more("\n", one))
	case "mistral":
		return constrain.Sequence(f.marker(), constrain.Text("["), call, more(", ", call), constrain.Text("]"))
	case "llama3_json":
		return constrain.Sequence(call, more("; ", call))
	}
	if !many {
		return call
	}
	return constrain.AnyOf(call, constrain.Sequence(constrain.Text("["), call, more(", ", call), constrain.Text("]")))
}
