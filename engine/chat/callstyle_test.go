package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/chat"
)

// TestCallStyle checks that arguments of calls are passed as an object, and as text to a template that can't use an
// object. The same holds for content beside calls.
func TestCallStyle(t *testing.T) {
	const call = "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
	const end = "{% endfor %}{% endif %}{% endfor %}"
	for _, test := range []struct{ source, want string }{
		{call + "{{ c.function.arguments | tojson }}" + end, `{"a": 1}`},
		{call + "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}" + end, "a=1"},
		{call + "{{ 'call ' + c['function']['arguments'] }}" + end, `call {"a": 1}`},
		{call + "{{ m.content is none }}{{ c.function.arguments.a }}{{ 'needle' }}" + end, "True1needle"},
		{call + "{{ '[' + m.content + ']' }}{{ c.function.arguments | tojson }}" + end, `[]{"a": 1}`},
		{call + "{{ m.content + c.function.arguments }}" + end, `{"a": 1}`},
	} {
		tmpl, err := chat.New(test.source, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(t.Context(), []chat.Message{
			{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []chat.ToolCall{{ID: "1", Name: "f", Arguments: `{"a": 1}`}}},
		}, chat.Options{})
		if err != nil || got != test.want {
			t.Errorf("%s\n got %q, %v\nwant %q", test.source, got, err, test.want)
		}
	}
}

// TestBrokenArguments checks that arguments of a call are always an object: no arguments are an empty one, and text
// that is not an object is a member of one.
func TestBrokenArguments(t *testing.T) {
	const call = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
	const end = "{% endfor %}{% endfor %}"
	for _, test := range []struct{ arguments, object, text string }{
		{"", "{}", "{}"},
		{" \n", "{}", "{}"},
		{"null", "{}", "{}"},
		{`{"a": 1}`, `{"a": 1}`, `{"a": 1}`},
		{`{"x":`, `{"unfinished": "{\"x\":"}`, `{"unfinished":"{\"x\":"}`},
		{`[1]`, `{"unfinished": "[1]"}`, `{"unfinished":"[1]"}`},
		{`{} {}`, `{"unfinished": "{} {}"}`, `{"unfinished":"{} {}"}`},
	} {
		for source, want := range map[string]string{
			call + "{{ c.function.arguments | tojson }}" + end:                                   test.object,
			call + "{{ 'call ' + c.function.arguments }}" + end:                                  "call " + test.text,
			call + "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}.": "",
		} {
			if want == "" {
				source += end
			}
			tmpl, err := chat.New(source, "", "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := tmpl.Render(t.Context(), []chat.Message{
				{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []chat.ToolCall{{ID: "1", Name: "f", Arguments: test.arguments}}},
			}, chat.Options{})
			if err != nil || want != "" && got != want {
				t.Errorf("%s with %q: got %q, %v, want %q", source, test.arguments, got, err, want)
			}
		}
	}
}

// TestSystemMessages checks that system messages at the beginning are joined if the template shows only one of them,
// or refuses more.
func TestSystemMessages(t *testing.T) {
	const all = "{% for m in messages %}[{{ m.role }} {{ m.content }}]{% endfor %}"
	for _, test := range []struct{ source, want string }{
		{all, "[system one][system two][user x]"},
		{chat.ChatML, "<|im_start|>system\none<|im_end|>\n<|im_start|>system\ntwo<|im_end|>\n<|im_start|>user\nx<|im_end|>\n"},
		{"{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('one') }}{% endif %}{% endfor %}" + all, "[system one\n\ntwo][user x]"},
		{"{{ messages[0].content }}:{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", "one\n\ntwo:x"},
	} {
		tmpl, err := chat.New(test.source, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(t.Context(), []chat.Message{{Role: "system", Content: "one"}, {Role: "system", Content: "two"}, {Role: "user", Content: "x"}}, chat.Options{})
		if err != nil || got != test.want {
			t.Errorf("%s\n got %q, %v\nwant %q", test.source, got, err, test.want)
		}
	}
}

// TestNothingIsDropped checks that tools, calls and results that a template does not show become text in messages
// that it shows.
func TestNothingIsDropped(t *testing.T) {
	tools := json.RawMessage(`[{"type": "function", "function": {"name": "f"}}]`)
	call := []chat.ToolCall{{ID: "1", Name: "f", Arguments: `{"a": 1}`}, {ID: "2", Name: "g"}}
	said := []chat.Message{
		{Role: "user", Content: "x"}, {Role: "assistant", Content: "well", ToolCalls: call},
		{Role: "tool", ToolCallID: "1", Content: "y"}, {Role: "tool", ToolCallID: "2", Content: "z"}, {Role: "user", Content: "so?"},
	}
	const told = `Functions:` + "\n" + `[{"type":"function","function":{"name":"f"}}]` + "\n" + `To call one, answer with {"name": "…", "arguments": {…}} and nothing else.`
	const called = "well\n" + `{"name": "f", "arguments": {"a": 1}}` + "\n" + `{"name": "g", "arguments": {}}`
	const all = "{% for m in messages %}[{{ m.role }} {{ m.content }}]{% endfor %}"
	const picky = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}{% endfor %}"
	const noSystem = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
	for _, test := range []struct {
		name, source string
		messages     []chat.Message
		want         string
	}{
		{"tools beside a system message", all, append([]chat.Message{{Role: "system", Content: "be"}}, said[:1]...), "[system be\n\n" + told + "][user x]"},
		{"ChatML", chat.ChatML, said[:1], "<|im_start|>system\n" + told + "<|im_end|>\n<|im_start|>user\nx<|im_end|>\n"},
		{"no system message", noSystem + all, said[:1], "[user " + told + "\n\nx]"},
		{"calls", all, said, "[system " + told + "][user x][assistant " + called + "][tool y][tool z][user so?]"},
		{"turns", picky + all, said, "[user " + told + "\n\nx][assistant " + called + "][user Result of f:\ny\n\nResult of g:\nz\n\nso?]"},
		{"a place for tools alone", all + "{% for f in tools %}{{ f.function.name }}{% endfor %}", said[:1], "[user x]f"},
		{"a place for calls alone", "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}", said, `{"a": 1}{}`},
	} {
		tmpl, err := chat.New(test.source, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(t.Context(), test.messages, chat.Options{Tools: tools})
		if err != nil || got != test.want {
			t.Errorf("%s\n got %q, %v\nwant %q", test.name, got, err, test.want)
		}
	}
	if said[1].Content != "well" || len(said[1].ToolCalls) != 2 || said[0].Content != "x" {
		t.Errorf("the conversation was changed: %+v", said)
	}
}

// TestOtherRoles: a message whose role the template does not know is not dropped silently.
func TestOtherRoles(t *testing.T) {
	for source, want := range map[string]string{
		"": "<|im_start|>critic\nx<|im_end|>\n",
		"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}": `it shows no message of the role "critic"`,
		"{% for m in messages %}{{ raise_exception(m.role) }}{% endfor %}":                       "refuses this conversation: critic",
	} {
		tmpl, err := chat.New(source, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range []string{"critic", "system user"} {
			want := strings.ReplaceAll(want, "critic", role)
			got, err := tmpl.Render(t.Context(), []chat.Message{{Role: role, Content: "x"}}, chat.Options{})
			if got != want && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
			}
		}
	}
}

// TestThinking checks that reasoning is the member that the template reads, and that a message with calls and a text has none.
func TestThinking(t *testing.T) {
	tmpl, err := chat.New("{% for message in messages %}[{{ message.reasoning_content }}|{{ message.thinking }}|{{ message.content }}]{% for c in message.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	calls := []chat.ToolCall{{ID: "1", Name: "f"}}
	got, err := tmpl.Render(t.Context(), []chat.Message{
		{Role: "assistant", Content: "x", Reasoning: "hm"}, {Role: "assistant", ToolCalls: calls, Reasoning: "hm"}, {Role: "assistant", Content: "x", ToolCalls: calls, Reasoning: "hm"},
	}, chat.Options{})
	if want := "[|hm|x][|hm|None]{}[||x]{}"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
