package chat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/chat"
)

// FuzzConditional: whatever stands in an expression, reading and rendering the template end.
func FuzzConditional(f *testing.F) {
	for _, s := range []string{"(a if b else c)", "x + (a if b", "[(1 if true), 'if' if \"else\" else {'a': 1 if c}]", "f(x=(1 if a else 2), y==3 if z)", "((((", "))))", "'\\", "if if if else else", "a if", "if a", "a.b if c else d if e else"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if len(expr) > 1000 {
			return
		}
		begin := time.Now()
		for _, source := range []string{"{{ " + expr + " }}", "{%- set x = " + expr + " -%}{{ x }}", "{% if " + expr + " %}a{% elif " + expr + " %}{% endif %}"} {
			tpl, err := chat.New(source, "", "")
			if err != nil {
				continue
			}
			_, _ = tpl.Render(nil, chat.Options{})
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("%q took %v", expr, d)
		}
	})
}

// TestConditionalErrors: what is wrong stays wrong.
func TestConditionalErrors(t *testing.T) {
	for _, source := range []string{"{{ (a if ) }}", "{{ (if b else c) }}", "{{ (a if b else c }}", "{{ (a if b else c)) }}", "{% set x = (1 if 2 else %}"} {
		tpl, err := chat.New(source, "", "")
		if err == nil {
			out, err := tpl.Render(nil, chat.Options{})
			t.Errorf("%s gives %q, %v, want an error", source, out, err)
			continue
		}
		if !strings.Contains(err.Error(), "syntax") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
