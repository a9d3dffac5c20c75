package jinja_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// TestFamilies renders generated conversations with the templates of testdata/families, of engine/chat's tests, and
// of the folder ROUSE_TEMPLATES, here and in Python. All texts must be equal, and nothing may be refused that Python
// renders.
func TestFamilies(t *testing.T) {
	templates := readTemplates(t, "testdata/families/*.jinja")
	archives, err := filepath.Glob("../chat/testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if f.Name == "template" {
				templates[strings.TrimSuffix(filepath.Base(path), ".txtar")] = strings.TrimSuffix(string(f.Data), "\n")
			}
		}
	}
	if len(templates) < 30 {
		t.Fatalf("%d templates: want those of 30 families", len(templates))
	}
	if folder := os.Getenv("ROUSE_TEMPLATES"); folder != "" {
		for name, source := range readTemplates(t, filepath.Join(folder, "*.jinja")) {
			if _, err := jinja.Parse(source); err != nil {
				t.Logf("%s is refused at load: %v", name, err)
				continue
			}
			templates[name] = source
		}
	}
	o := newOracle(t)
	for name, source := range templates {
		t.Run(name, func(t *testing.T) { compareFamily(t, o, source) })
	}
}

// readTemplates returns the files of a pattern by their names.
func readTemplates(t *testing.T, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no templates, %v", pattern, err)
	}
	templates := map[string]string{}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		templates[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(source)
	}
	return templates
}

// conversations is the number of conversations for each template.
const conversations = 60

func compareFamily(t *testing.T, o *oracle, source string) {
	t.Helper()
	var texts, refused, failed, shown int
	for seed := range uint64(conversations) {
		vars := newTalk(seed).variables()
		want := o.render(t, source, vars)
		got, limit := ours(t, source, vars)
		switch {
		case limit != nil && want.Error == "":
			t.Errorf("a limit: %v", limit)
		case want.Text != nil:
			texts++
		case want.Refused != nil:
			refused++
		default:
			failed++
		}
		if same(want, got) {
			continue
		}
		if shown++; shown > 3 {
			continue
		}
		t.Errorf("conversation %d:\n%s\n%s", seed, vars, difference(want, got))
	}
	t.Logf("%d texts, %d refused by raise_exception, %d errors in both; %d differ", texts, refused, failed, shown)
}

// difference returns two answers from shortly before their first difference.
func difference(want, got answer) string {
	a, b := want.String(), got.String()
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(at-60, 0)
	return fmt.Sprintf("from byte %d\nPython …%.300q\nhere   …%.300q", from, a[from:], b[from:])
}

// same reports whether two answers are equal; the texts of errors may differ.
func same(a, b answer) bool {
	switch {
	case a.Text != nil:
		return b.Text != nil && *a.Text == *b.Text
	case a.Refused != nil:
		return b.Refused != nil && *a.Refused == *b.Refused
	}
	return b.Text == nil && b.Refused == nil
}

// talk makes random conversations with tools.
type talk struct{ *rand.Rand }

func newTalk(seed uint64) talk { return talk{rand.New(rand.NewPCG(seed, 7))} }

func (k talk) one(of ...any) any { return of[k.IntN(len(of))] }

func (k talk) chance(percent int) bool { return k.IntN(100) < percent }

// text returns the content of a message by role k.
func (k talk) text() string {
	return k.one("hi", "What is the weather in Paris?", "  spaces \n around\n\n", "", "é ü 漢字 🎉 \u2028", `{"json": "in text"}`,
		"<b>html & 'quotes' \"double\"</b>", "{{ braces }} {% tag %}", "a\\b\tc\r\nd", "think: <think>no</think> yes", "line\nline\nline",
		"1", "None", "<tool_call>x</tool_call>").(string)
}

// object keeps the order of its members in JSON.
type object []any

func (o object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i < len(o); i += 2 {
		k, err := json.Marshal(o[i])
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(o[i+1])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", k, v)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

func (k talk) schema(depth int) object {
	description := k.one("the city", "a \"quoted\" thing", "two\nlines", "höhe").(string)
	switch n := k.IntN(7); {
	case n == 0 && depth < 3:
		return object{"type", "object", "properties", object{"inner", k.schema(depth + 1), "items", k.schema(depth + 1)}, "required", []any{"inner"}, "description", description}
	case n == 1 && depth < 3:
		return object{"type", "array", "items", k.schema(depth + 1), "description", description}
	case n == 2:
		return object{"type", "string", "enum", []any{"celsius", "fahrenheit", 3, nil}, "description", description, "default", "celsius"}
	case n == 3:
		return object{"type", []any{"string", "null"}, "description", description}
	case n == 4:
		return object{"anyOf", []any{object{"type", "integer"}, object{"type", "string"}}}
	case n == 5:
		return object{"type", "integer", "minimum", 0, "maximum", json.Number("18446744073709551615"), "description", description}
	}
	return object{"type", k.one("string", "number", "boolean", "integer"), "description", description}
}

func (k talk) tools() any {
	if k.chance(35) {
		return nil
	}
	var tools []any
	for i := range 1 + k.IntN(3) {
		f := object{"name", fmt.Sprintf("tool_%d", i), "description", k.text()}
		if k.chance(90) {
			p := object{"location", k.schema(0)}
			if k.chance(50) {
				p = append(p, "unit", k.schema(0))
			}
			params := object{"type", "object", "properties", p}
			if k.chance(70) {
				params = append(params, "required", []any{"location"})
			}
			if k.chance(20) {
				params = append(params, "additionalProperties", false)
			}
			f = append(f, "parameters", params)
		}
		if k.chance(20) {
			f = append(f, "return", object{"type", "string"})
		}
		tools = append(tools, object{"type", "function", "function", f})
	}
	return tools
}

func (k talk) arguments() any {
	args := object{}
	for i := range k.IntN(4) {
		args = append(args, fmt.Sprintf("key%d", i), k.one("text", k.text(), 3, -1.5, 1e-7, true, false, nil, []any{1, "two", nil, object{"a", true}}, object{"deep", object{"er", []any{}}}, json.Number("123456789012345678901")))
	}
	if k.chance(25) {
		text, _ := json.Marshal(args) // always encodes
		return string(text)
	}
	return args
}

func (k talk) content() any {
	switch n := k.IntN(10); {
	case n == 0:
		return nil
	case n == 1:
		return []any{object{"type", "text", "text", k.text()}, object{"type", "text", "text", k.text()}}
	case n == 2:
		return []any{}
	}
	return k.text()
}

func (k talk) message(role string, call int) object {
	m := object{"role", role}
	if k.chance(95) {
		m = append(m, "content", k.content())
	}
	if role == "assistant" {
		if k.chance(25) {
			m = append(m, k.one("reasoning_content", "reasoning", "thinking"), k.text())
		}
		if k.chance(40) {
			var calls []any
			for i := range 1 + k.IntN(2) {
				c := object{"id", fmt.Sprintf("call%05d", call+i), "type", "function", "function", object{"name", fmt.Sprintf("tool_%d", i), "arguments", k.arguments()}}
				if k.chance(10) {
					c = c[2:]
				}
				calls = append(calls, c)
			}
			m = append(m, "tool_calls", calls)
		}
	}
	if role == "tool" {
		m = append(m, "tool_call_id", fmt.Sprintf("call%05d", call))
		if k.chance(60) {
			m = append(m, "name", "tool_0")
		}
	}
	return m
}

// variables returns the variables of a rendering, as a JSON object. Half of the conversations have the roles in the
// order that strict templates require.
func (k talk) variables() string {
	var messages []any
	if k.chance(60) {
		messages = append(messages, k.message(k.one("system", "system", "system", "developer").(string), 0))
	}
	strict := k.chance(60)
	for i := range k.IntN(4) {
		if strict {
			messages = append(messages, k.message("user", i))
			answer := k.message("assistant", i)
			messages = append(messages, answer)
			if len(answer) > 0 && answer[len(answer)-2] == "tool_calls" {
				messages = append(messages, k.message("tool", i), object{"role", "assistant", "content", k.text()})
			}
			continue
		}
		messages = append(messages, k.message(k.one("user", "user", "assistant", "tool", "system").(string), i))
	}
	if strict || len(messages) == 0 {
		messages = append(messages, object{"role", "user", "content", k.text()})
	}
	vars := object{"messages", messages, "tools", k.tools(), "bos_token", "<s>", "eos_token", "</s>", "add_generation_prompt", k.chance(70)}
	if k.chance(30) {
		vars = append(vars, "enable_thinking", k.chance(50))
	}
	if k.chance(15) {
		vars = append(vars, "documents", []any{object{"title", "one", "text", k.text()}, object{"title", "two", "text", "x"}})
	}
	if k.chance(15) {
		vars = append(vars, "reasoning_effort", k.one("low", "medium", "high"), "thinking", k.chance(50), "date_string", "04 Jul 2025")
	}
	text, err := json.Marshal(vars)
	if err != nil {
		panic(err) // only plain values
	}
	return string(text)
}
