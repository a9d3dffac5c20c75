package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// harmonyModel returns the tokenizer and the format of a generated gpt-oss.
func harmonyModel(t *testing.T) (*tokenizer.Tokenizer, *toolFormat) {
	t.Helper()
	f := infertest.Open(t, infertest.Spec{Arch: "gpt-oss"})
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	template, _ := f.String("tokenizer.chat_template")
	h := newHarmony(template, tok)
	if h == nil || newHarmony(chat.ChatML, tok) != nil {
		t.Fatalf("harmony is not recognised: %+v", h)
	}
	format := newToolFormat("", template, tok, h)
	if format.name != "harmony" {
		t.Fatalf("the calls' format is %s", format.name)
	}
	for text, end := range map[string]bool{"<|return|>": true, "<|call|>": true, "<|end|>": false} {
		if id := controlToken(tok, text); id < 0 || tok.IsEnd(id) != end {
			t.Errorf("%s is token %d, which ends an answer: %v", text, id, !end)
		}
	}
	return tok, format
}

func TestHarmony(t *testing.T) {
	tok, format := harmonyModel(t)
	use := &toolUse{many: true, tools: []toolSpec{{name: "get"}, {name: "put"}}}
	type heard struct{ Thought, Text, Calls string }
	for name, tt := range map[string]struct {
		answer string
		use    *toolUse
		want   heard
	}{
		"reasoning and a text": {"<|channel|>analysis<|message|>hm <hm><|end|><|start|>assistant<|channel|>final<|message|>yes\n no", nil, heard{"hm <hm>", "yes\n no", ""}},
		"a text":               {"<|channel|>final<|message|>analysis", use, heard{"", "analysis", ""}},
		"a call": {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": 1}", use,
			heard{"hm", "", `get({"a": 1})`}},
		"to whom stands first": {"<|start|>assistant to=functions.put<|channel|>commentary json<|message|>{}", use, heard{"", "", "put({})"}},
		"a preamble and two calls": {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get<|message|>{}<|start|>assistant<|channel|>commentary to=functions.put<|message|>{\"b\": 2}",
			use, heard{"", "I look.", `get({})put({"b": 2})`}},
		"one call only":       {"<|channel|>commentary to=functions.get<|message|>{}<|start|>assistant<|channel|>commentary to=functions.put<|message|>{}", &toolUse{tools: use.tools}, heard{"", "", "get({})"}},
		"an unknown tool":     {"<|channel|>commentary to=functions.none<|message|>{}", use, heard{"", "{}", ""}},
		"a call, no tools":    {"<|channel|>commentary to=functions.get<|message|>{}", nil, heard{"", "{}", ""}},
		"two texts":           {"<|channel|>commentary<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>two", nil, heard{"", "one\n\ntwo", ""}},
		"cut in a header":     {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>fin", nil, heard{"hm", "", ""}},
		"no messages":         {"plain text", nil, heard{"", "plain text", ""}},
		"cut in the thinking": {"<|channel|>analysis<|message|>hm", nil, heard{"hm", "", ""}},
	} {
		p := format.harmony.parser(false)
		var calls *toolParser
		if tt.use != nil {
			calls = newToolParser(format, tt.use)
		}
		var got heard
		add := func(parts []toolPart) {
			for _, part := range parts {
				got.Text += part.text
				if part.begin {
					if got.Calls += part.name + "("; part.id == "" {
						t.Errorf("%s: a call has no id", name)
					}
				}
				got.Calls += part.args
			}
		}
		for _, id := range tok.Encode(tt.answer, true) {
			thought, parts := p.write(id, string(tok.Piece(id)), calls)
			got.Thought += thought
			add(parts)
		}
		add(p.close())
		got.Calls = strings.ReplaceAll(got.Calls, "}", "})")
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
	p := format.harmony.parser(true)
	if thought, parts := p.write(tok.Encode("x", false)[0], "x", nil); thought != "" || len(parts) != 1 || parts[0].text != "x" {
		t.Errorf("a continued text: %q, %v", thought, parts)
	}
}

// TestHarmonyForms checks that the final text has the form, and that reasoning may come first.
func TestHarmonyForms(t *testing.T) {
	tok, format := harmonyModel(t)
	h, all := format.harmony, newGrammars(tok)
	pattern := "[{][}]"
	w := regexConstraint("guided_regex", &pattern)
	use := &toolUse{tools: []toolSpec{{name: "get"}}}
	text, call, either := h.reasoned(*h.final(*w)), h.reasoned(*use.constraint(format, nil)), h.reasoned(*use.constraint(format, h.final(*w)))
	const thought = "<|channel|>analysis<|message|>hm }<|end|><|start|>assistant"
	const calls = "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}"
	for _, tt := range []struct {
		w      *constraint
		answer string
		want   bool
	}{
		{text, "<|channel|>final<|message|>{}", true},
		{text, thought + "<|channel|>final<|message|>{}", true},
		{text, "{}", false},
		{text, thought + thought + "<|channel|>final<|message|>{}", false},
		{text, "<|channel|>final<|message|>x", false},
		{text, calls, false},
		{call, calls, true},
		{call, thought + calls, true},
		{call, "<|channel|>final<|message|>{}", false},
		{either, calls, true},
		{either, thought + "<|channel|>final<|message|>{}", true},
	} {
		g, err := all.get(t.Context(), tt.w)
		if err != nil {
			t.Fatal(err)
		}
		m := g.Matcher()
		mask := make([]uint64, (tok.Size()+63)/64)
		ids := tok.Encode(tt.answer, true)
		allowed := !slices.ContainsFunc(ids, func(id int32) bool {
			m.Mask(mask)
			return mask[id>>6]>>(id&63)&1 == 0 || m.Accept(id) != nil
		})
		if got := allowed && m.Done(); got != tt.want {
			t.Errorf("%q: allowed %v, done %v, want %v", tt.answer, allowed, m.Done(), tt.want)
		}
	}
}
