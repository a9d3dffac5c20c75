package serve

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// spoken is a client's view of an answer: its text, and each call as name(arguments).
type spoken struct {
	Text  string
	Calls []string
}

// speakTo parses an answer in pieces of size bytes. "\x00" is the format's control token.
func speakTo(f *toolFormat, u *toolUse, answer string, size int) spoken {
	p := newToolParser(f, u)
	var s spoken
	add := func(parts []toolPart) {
		for _, part := range parts {
			s.Text += part.text
			if part.begin {
				s.Calls = append(s.Calls, part.name+"(")
			}
			if part.call >= 0 {
				s.Calls[part.call] += part.args
			}
		}
	}
	for i, stretch := range strings.Split(answer, "\x00") {
		if i > 0 {
			add(p.write(f.token, ""))
		}
		for len(stretch) > 0 {
			n := min(size, len(stretch))
			add(p.write(1, stretch[:n]))
			stretch = stretch[n:]
		}
	}
	add(p.close())
	for i := range s.Calls {
		s.Calls[i] += ")"
	}
	return s
}

func TestToolCalls(t *testing.T) {
	use := &toolUse{many: true, tools: []toolSpec{{name: "get"}, {name: "put"}}}
	one := &toolUse{tools: use.tools}
	typed := &toolUse{many: true, tools: []toolSpec{{name: "put", parameters: []byte(`{"properties": {"s": {"type": "string"}, "n": {"type": ["string", "null"]}, "i": {"type": "integer"}}}`)}}}
	for _, test := range []struct {
		format, answer string
		use            *toolUse
		want           spoken
	}{
		{"hermes", "hello <b> < there", use, spoken{"hello <b> < there", nil}},
		{"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>", use, spoken{"", []string{`get({"a": [1, "}\""]})`}}},
		{"hermes", "I look.\n\n<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"x\":1},\"name\":\"put\"}</tool_call>\n", use, spoken{"I look.", []string{"get({})", `put({"x":1})`}}},
		{"hermes", "<tool_call>\n{\"name\": \"get\"}\n</tool_call>", use, spoken{"", []string{"get({})"}}},
		{"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": \"{\\\"a\\\":1}\"}\n</tool_call>", use, spoken{"", []string{`get({"a":1})`}}},
		{"hermes", "<tool_call>\n{\"name\": \"none\", \"arguments\": {}}\n</tool_call>", use, spoken{"<tool_call>\n{\"name\": \"none\", \"arguments\": {}}\n</tool_call>", nil}},
		{"hermes", "<tool_call>\nnot json\n</tool_call>", use, spoken{"<tool_call>\nnot json\n</tool_call>", nil}},
		{"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1", use, spoken{"", []string{`get({"a": 1)`}}},
		{"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"put\",\"arguments\":{}}</tool_call>", one, spoken{"", []string{"get({})"}}},
		{"hermes", "{\"name\":\"get\",\"arguments\":{}}", use, spoken{"{\"name\":\"get\",\"arguments\":{}}", nil}},
		{"qwen3_coder", "I look.\n\n<tool_call>\n<function=get>\n</function>\n</tool_call>\n<tool_call>\n<function=put>\n<parameter=a>\n[1, \"}\"]\n</parameter>\n<parameter=b>\nx < \"y\"\n\nz</parameter>\n</function>\n</tool_call>", use,
			spoken{"I look.", []string{"get({})", `put({"a": [1, "}"], "b": "x < \"y\"\n\nz"})`}}},
		{"qwen3_coder", "<tool_call>\n<function=put>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\nnull\n</parameter>\n<parameter=i>\n12\n</parameter>\n<parameter=o>True</parameter></function></tool_call>", typed,
			spoken{"", []string{`put({"s": "12", "n": null, "i": 12, "o": true})`}}},
		{"qwen3_coder", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>", use, spoken{"", []string{`get({"a": 1})`}}},
		{"qwen3_coder", "<tool_call>\n<function=none>\n</function>\n</tool_call>", use, spoken{"<tool_call>\n<function=none>\n</function>\n</tool_call>", nil}},
		{"qwen3_coder", "<tool_call>\n<b>\n</tool_call>", use, spoken{"<tool_call>\n<b>\n</tool_call>", nil}},
		{"qwen3_coder", "<tool_call>\n<function=get>\n<parameter=a>\n1\n</parameter>\n<parameter=b", use, spoken{"", []string{`get({"a": 1)`}}},
		{"qwen3_coder", "<tool_call><function=get>text</tool_call> text", use, spoken{" text", []string{"get({)"}}},
		{"mistral", "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": 1}}, {\"name\": \"put\", \"arguments\": {}, \"id\": \"123456789\"}]", use, spoken{"", []string{`get({"a": 1})`, "put({})"}}},
		{"mistral", "well [TOOL_CALLS]get{\"a\": {\"b\": 2}}[TOOL_CALLS]put[ARGS]{}", use, spoken{"well", []string{`get({"a": {"b": 2}})`}}},
		{"mistral-control", "\x00[{\"name\": \"get\", \"arguments\": {\"a\": 1}}]", use, spoken{"", []string{`get({"a": 1})`}}},
		{"mistral-control", "text \x00get{\"a\": 1}\x00put[ARGS]{\"b\":2}", use, spoken{"text", []string{`get({"a": 1})`, `put({"b":2})`}}},
		{"llama3_json", "{\"name\": \"get\", \"parameters\": {\"a\": \"é\"}}", use, spoken{"", []string{`get({"a": "é"})`}}},
		{"llama3_json", "{\"name\": \"get\", \"parameters\": {}}; {\"name\": \"put\", \"parameters\": {\"x\": null}}", use, spoken{"", []string{"get({})", `put({"x": null})`}}},
		{"llama3_json", "{\"type\": \"function\", \"function\": {\"name\": \"get\", \"parameters\": {\"q\": 1.5}}}", use, spoken{"", []string{`get({"q": 1.5})`}}},
		{"llama3_json", "{\"type\": \"function\", \"function\": \"get\", \"parameters\": {\"q\": 1}}", use, spoken{"", []string{`get({"q": 1})`}}},
		{"llama3_json", " {\"city\": \"Rome\", \"name\": 5}", use, spoken{" {\"city\": \"Rome\", \"name\": 5}", nil}},
		{"llama3_json", "Sure: {\"name\": \"get\", \"parameters\": {}}", use, spoken{"Sure: {\"name\": \"get\", \"parameters\": {}}", nil}},
		{"json", "[{\"name\": \"get\", \"arguments\": {}}, {\"name\": \"put\", \"arguments\": {}}]", use, spoken{"", []string{"get({})", "put({})"}}},
		{"json", "[1, 2]", use, spoken{"[1, 2]", nil}},
		{"json", "", use, spoken{"", nil}},
		{"json", "  ", use, spoken{"  ", nil}},
	} {
		name, control := strings.CutSuffix(test.format, "-control")
		var format *toolFormat
		for _, f := range toolFormats {
			if f.name == name {
				f.token = -1
				if control {
					f.token = 9
				}
				format = &f
			}
		}
		if test.format == "mistral" && strings.Contains(test.answer, "[ARGS]") {
			test.want.Calls = append(test.want.Calls, "put({})")
		}
		for size := 1; size <= len(test.answer)+1; size++ {
			if diff := cmp.Diff(test.want, speakTo(format, test.use, test.answer, size)); diff != "" {
				t.Errorf("%s, %q in pieces of %d (-want +got):\n%s", test.format, test.answer, size, diff)
				break
			}
		}
	}
}

// TestToolFormats checks what a chat template says of the format.
func TestToolFormats(t *testing.T) {
	tok, err := tokenizer.FromGGUF(infertest.Open(t, infertest.Spec{Arch: "qwen35"}))
	if err != nil {
		t.Fatal(err)
	}
	for template, want := range map[string]string{
		"write <tool_call>\n<function=NAME>": "qwen3_coder", "write <tool_call>\n{\"name\": …": "hermes", "<|python_tag|>": "llama3_json", "<function=": "json", "": "json",
	} {
		if got := newToolFormat("auto", template, tok, nil); got.name != want {
			t.Errorf("%q: %s, want %s", template, got.name, want)
		}
	}
}

// FuzzToolCalls checks for any answer that the result does not depend on its pieces, and that nothing panics.
func FuzzToolCalls(f *testing.F) {
	f.Add("a <tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call> b", 3)
	f.Add("<tool_call><function=put><parameter=a>\n1</parameter></function></tool_call> b", 3)
	f.Add("[TOOL_CALLS]get{\"a\":1}", 2)
	f.Add("{\"name\":\"get\",\"parameters\":{\"a\":\"\\\"}\"}}; {", 5)
	f.Add("[{\"function\":{\"name\":\"get\",\"arguments\":\"x\"}}]", 1)
	f.Fuzz(func(t *testing.T, answer string, size int) {
		size = 1 + int(uint(size)%9)
		answer = strings.ReplaceAll(answer, "\x00", "")
		for _, format := range toolFormats {
			format.token = -1
			for _, many := range []bool{true, false} {
				use := &toolUse{many: many, tools: []toolSpec{{name: "get"}, {name: "put"}}}
				whole, parts := speakTo(&format, use, answer, len(answer)+1), speakTo(&format, use, answer, size)
				if diff := cmp.Diff(whole, parts); diff != "" {
					t.Errorf("%s, %q in pieces of %d (-whole +pieces):\n%s", format.name, answer, size, diff)
				}
			}
		}
	})
}
