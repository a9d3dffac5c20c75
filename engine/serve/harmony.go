package serve

import (
	"context"
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// harmony is the format of gpt-oss's answers: messages on channels. Those on analysis are reasoning, those to
// functions.NAME are calls, others are text. Its marks are control tokens.
//
//	<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
//	<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
type harmony struct{ start, channel, constrain, message, end int32 }

// newHarmony returns nil if the model answers otherwise.
func newHarmony(template string, tok *tokenizer.Tokenizer) *harmony {
	if !strings.Contains(template, "<|channel|>") {
		return nil
	}
	h := &harmony{}
	for to, text := range map[*int32]string{&h.start: "<|start|>", &h.channel: "<|channel|>", &h.constrain: "<|constrain|>", &h.message: "<|message|>", &h.end: "<|end|>"} {
		if *to = controlToken(tok, text); *to < 0 {
			return nil
		}
	}
	return h
}

// on returns the form of a message without its end.
func (h *harmony) on(header, body constrain.Form) constrain.Form {
	return constrain.Sequence(constrain.Token(h.channel), header, constrain.Token(h.message), body)
}

func (h *harmony) call(name string, arguments constrain.Form) constrain.Form {
	return h.on(constrain.Sequence(constrain.Text("commentary to=functions."+name+" "), constrain.Token(h.constrain), constrain.Text("json")), arguments)
}

func (h *harmony) final(w constraint) *constraint {
	form := w.form
	w.form = func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		text, err := form(ctx, b)
		return h.on(constrain.Text("final"), text), err
	}
	return &w
}

// reasoned lets an answer begin with reasoning.
func (h *harmony) reasoned(w constraint) *constraint {
	form := w.form
	w.form = func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		any, err := constrain.Regex(ctx, b, `[\s\S]*`)
		if err != nil {
			return any, err
		}
		thought := constrain.Sequence(h.on(constrain.Text("analysis"), any), constrain.Token(h.end), constrain.Token(h.start), constrain.Text("assistant"))
		answer, err := form(ctx, b)
		return constrain.Sequence(constrain.Repeat(thought, 0, 1), answer), err
	}
	return &w
}

type harmonyParser struct {
	of     *harmony
	state  harmonyState
	header strings.Builder
	begun  bool // a message
	said   bool // text
}

type harmonyState int

const (
	harmonyHeader harmonyState = iota // before <|message|>
	harmonyThought
	harmonyText
	harmonyCall
	harmonyDropped
)

// An answer begins in a message's header, or in a text that it continues.
func (h *harmony) parser(continues bool) *harmonyParser {
	p := &harmonyParser{of: h}
	if continues {
		p.state = harmonyText
	}
	return p
}

// write takes the next token and its text. Without tools calls are text.
func (p *harmonyParser) write(token int32, text string, tools *toolParser) (thought string, parts []toolPart) {
	switch h := p.of; token {
	case h.start, h.end:
		p.state = harmonyHeader
		p.header.Reset()
		return "", nil
	case h.channel:
		p.state = harmonyHeader
		p.header.WriteString(" <|channel|> ")
		return "", nil
	case h.constrain:
		return "", nil
	case h.message:
		return "", p.begin(tools)
	}
	switch p.state {
	case harmonyHeader:
		p.header.WriteString(text)
	case harmonyThought:
		return text, nil
	case harmonyText:
		parts = []toolPart{{text: text, call: -1}}
	case harmonyCall:
		parts = []toolPart{{call: tools.calls - 1, args: text}}
	}
	return "", parts
}

func (p *harmonyParser) begin(tools *toolParser) []toolPart {
	var channel, name string
	words := strings.Fields(p.header.String())
	for i, w := range words {
		if w == "<|channel|>" && i+1 < len(words) {
			channel = words[i+1]
		}
		if to, is := strings.CutPrefix(w, "to=functions."); is {
			name = to
		}
	}
	p.begun = true
	switch {
	case name != "" && tools != nil && tools.use.find(name) != nil:
		if p.state = harmonyCall; tools.calls > 0 && !tools.use.many {
			p.state = harmonyDropped
			return nil
		}
		tools.calls++
		return []toolPart{{call: tools.calls - 1, id: tools.newID(), name: name, begin: true}}
	case channel == "analysis":
		p.state = harmonyThought
	default:
		p.state = harmonyText
		if p.said { // text before the final one
			return []toolPart{{text: "\n\n", call: -1}}
		}
		p.said = true
	}
	return nil
}

// close returns the text of an answer without messages.
func (p *harmonyParser) close() []toolPart {
	if p.begun || p.state != harmonyHeader {
		return nil
	}
	return []toolPart{{text: strings.TrimSpace(p.header.String()), call: -1}}
}
