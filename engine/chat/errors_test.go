package chat_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/chat"
)

// TestSyntax checks that a broken template is refused when the model is loaded.
func TestSyntax(t *testing.T) {
	for source, want := range map[string]string{
		"{% for m in messages %}":            "line 1: the template ends where 'endfor' or 'else' is missing",
		"a\nb {{ messages":                   "line 2: expected '}}', found the end of the template",
		"{% if %}":                           "expected an expression",
		"{% nonsense %}":                     "unknown tag 'nonsense'",
		"{% include 'chat_template' %}":      "the tag 'include' is not supported",
		"{% extends '/etc/passwd' %}":        "the tag 'extends' is not supported",
		"{% import '/etc/passwd' as p %}":    "the tag 'import' is not supported",
		"{% macro f( %}x{% endmacro %}":      "unexpected '}'",
		"a\n{{ messages | from_json }}":      "line 2: the filter 'from_json' is not supported",
		"{{ messages is odder }}":            "line 1: the test 'odder' is not supported",
		"{{ 'x'.encode() }}":                 "line 1: the method 'encode' is not supported",
		strings.Repeat("x", 1<<18+1):         "at most 262144",
		"{{ " + strings.Repeat("(", 5000):    "nest deeper than 200",
		"{{ " + strings.Repeat("not ", 4000): "nest deeper than 200",
		"{{ " + strings.Repeat("-", 20000):   "a tag has more than 5000 names",
		"{{ 1" + strings.Repeat("+1", 20000): "a tag has more than 5000 names",
		strings.Repeat("{%if a%}", 2000):     "nest deeper than 200",
	} {
		_, err := chat.New(source, "", "")
		if len(source) > 40 {
			source = source[:40]
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", source, err, want)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", source, len(err.Error()))
		}
	}
}

// TestRenderErrors checks that a failure while rendering is a clear error, never a panic or a hang.
func TestRenderErrors(t *testing.T) {
	for source, want := range map[string]string{
		"{{ raise_exception('no tools here') }}": "refuses this conversation: no tools here",
		"{{ raise_exception() }}":                "refuses this conversation: no reason given",
		"{{ messages[0].tool_calls[0].name }}":   "chat template: ",
		"{{ nothing() }}":                        "chat template: ",
		"{{ 'a' + messages }}":                   "unsupported operand types for +: 'str' and 'list'",
		"{{ strftime_now('%Q') }}":               "unknown directive %Q",
		"{{ range(100000000) }}":                 "range is longer than 100000",
		"{% for i in range(60000) %}{{ range(60000) | list }}{% endfor %}":             "exceeds its budget",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                              "more than 200 calls within calls",
		"{% macro f(n) %}{% if n %}x{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}": "",
		"{{ 1 % 0 }}": "chat template: ",
		"{% if tools %}{{ messages | from_json }}{{ f() }}{{ x is odder }}{% endif %}": "",
		"{{ 'x'.split('') }}":     "empty separator",
		"{{ messages | tojson }}": "",
	} {
		tmpl, err := chat.New(source, "", "")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		out, err := tmpl.Render(t.Context(), []chat.Message{{Role: "user", Content: "hi"}}, chat.Options{})
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: got error %v", source, err)
			}
		case err == nil:
			t.Errorf("%s: got %.100q, want an error with %q", source, out, want)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: got error %v, want one with %q", source, err, want)
		}
		var refused *chat.RefusedError
		if errors.As(err, &refused) != strings.Contains(source, "raise_exception") {
			t.Errorf("%s: error %v of type %T", source, err, err)
		}
	}
}

// TestRequestErrors checks tools and variables of the request that are not JSON, or whose names are taken.
func TestRequestErrors(t *testing.T) {
	tmpl := openArchive(t, "testdata/qwen25.txtar").template
	deep := strings.Repeat("[", 1000)
	for want, o := range map[string]chat.Options{
		"tools: not valid JSON: unexpected EOF":             {Tools: json.RawMessage(`[{"a":`)},
		"tools: not valid JSON: nested deeper than 64":      {Tools: json.RawMessage(deep)},
		"tools: not a JSON array":                           {Tools: json.RawMessage(`{"a": 1}`)},
		"tools: not valid JSON: text after the value":       {Tools: json.RawMessage(`[] []`)},
		`template variable "messages" is set by the server`: {Extra: map[string]json.RawMessage{"messages": json.RawMessage(`[]`)}},
		`template variable "x": not valid JSON`:             {Extra: map[string]json.RawMessage{"x": json.RawMessage(`}`)}},
	} {
		if _, err := tmpl.Render(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestGuard checks that all parts of the request pass the guard, and nothing else.
func TestGuard(t *testing.T) {
	tmpl := openArchive(t, "testdata/qwen25.txtar").template
	seen := map[string]bool{}
	guard := func(s string) string {
		seen[s] = true
		return strings.ReplaceAll(s, "<|", "<!|")
	}
	out, err := tmpl.Render(t.Context(), []chat.Message{
		{Role: "user", Content: "<|im_end|>1"},
		{Role: "assistant", ToolCalls: []chat.ToolCall{{ID: "i", Name: "<|f", Arguments: `{"<|k": ["<|v"]}`}, {Name: "g", Arguments: "no <| JSON"}}},
		{Role: "tool", Content: "<|r", ToolCallID: "i", Name: "<|n"},
	}, chat.Options{Tools: json.RawMessage(`[{"<|t": "<|u"}]`), AddGenerationPrompt: true, Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"<|im_end|>1", "<|f", "<|k", "<|v", "<|r", "<|t", "<|u", "no <| JSON", "<|n", "i", "user"} {
		if !seen[s] {
			t.Errorf("%q did not pass the guard", s)
		}
	}
	if got := strings.Count(strings.ReplaceAll(strings.ReplaceAll(out, "<|im_start|>", ""), "<|im_end|>", ""), "<|"); got != 0 {
		t.Errorf("%d unguarded marks in %q", got, out)
	}
}

// TestConcurrent renders one template from many goroutines. It is most useful with -race.
func TestConcurrent(t *testing.T) {
	for _, name := range []string{"llama3", "mistral", "language"} {
		a := openArchive(t, "testdata/"+name+".txtar")
		base := "one"
		if name == "language" {
			base = "pieces"
		}
		messages, o := parseCase(t, a.files[base+".json"])
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					got, err := a.template.Render(t.Context(), messages, o)
					if err != nil || got != a.files[base+".want"] {
						t.Errorf("%s: got %q, %v", name, got, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestGeneration checks that {% generation %} leaves no trace in the text.
func TestGeneration(t *testing.T) {
	tmpl, err := chat.New("{% for m in messages %}{%- generation -%} {{ m.content }} {%- endgeneration %}{% endfor %}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tmpl.Render(t.Context(), []chat.Message{{Content: "a"}, {Content: "b"}}, chat.Options{}); err != nil || got != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestStrftime(t *testing.T) {
	tmpl, err := chat.New("{{ strftime_now('%d %b %Y|%-d %B %y|%H:%M:%S|%I %p|%A %a %j %F %%') }}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(t.Context(), nil, chat.Options{Now: time.Date(2025, 7, 4, 15, 5, 3, 0, time.UTC)})
	if want := "04 Jul 2025|4 July 25|15:05:03|03 PM|Friday Fri 185 2025-07-04 %"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// FuzzTemplate checks that no template makes New or Render panic.
func FuzzTemplate(f *testing.F) {
	for _, name := range []string{"chatml", "llama3", "mistral", "language", "gemma"} {
		f.Add(openArchive(f, "testdata/"+name+".txtar").files["template"])
	}
	f.Add("{% raw %}{{ x }}{% endraw %}{%- if a -%} b {%+ endif +%}{{ '%}' }}{# {{ #}")
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := chat.New(source, "<s>", "</s>")
		if err != nil {
			return
		}
		_, _ = tmpl.Render(t.Context(), []chat.Message{{Role: "user", Content: "hi"}, {Role: "assistant", ToolCalls: []chat.ToolCall{{Name: "f", Arguments: "{}"}}}}, chat.Options{AddGenerationPrompt: true})
	})
}
