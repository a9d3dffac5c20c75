package chat_test

import (
	"testing"

	"github.com/rouse-dev/rouse/engine/chat"
)

// TestCallStyle: arguments of calls come as an object, and as text to a template that can do nothing with an object; so does
// content beside calls.
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
		{"{{ messages[1].content }}", "None"}, // nothing of a call: as it comes
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
