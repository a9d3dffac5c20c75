package chat_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/chat"
)

// conversation is a case of the archives in testdata: a request in OpenAI's form, and template variables.
type conversation struct {
	Messages []struct {
		Role             string `json:"role"`
		Content          string `json:"content"`
		ToolCallID       string `json:"tool_call_id"`
		ReasoningContent string `json:"reasoning_content"`
		ToolCalls        []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	AddGenerationPrompt bool            `json:"add_generation_prompt"`
	Tools               json.RawMessage `json:"tools"`
}

func parseCase(t *testing.T, text string) ([]chat.Message, chat.Options) {
	t.Helper()
	var c conversation
	o := chat.Options{Now: time.Date(2025, 7, 4, 9, 5, 3, 0, time.UTC)}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &o.Extra); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(o.Extra, func(k string, _ json.RawMessage) bool {
		return slices.Contains([]string{"messages", "add_generation_prompt", "tools"}, k)
	})
	o.AddGenerationPrompt, o.Tools = c.AddGenerationPrompt, c.Tools
	var messages []chat.Message
	for _, m := range c.Messages {
		msg := chat.Message{Role: m.Role, Content: m.Content, ToolCallID: m.ToolCallID, Reasoning: m.ReasoningContent}
		for _, call := range m.ToolCalls {
			msg.ToolCalls = append(msg.ToolCalls, chat.ToolCall{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
		messages = append(messages, msg)
	}
	return messages, o
}

// archive is one file of testdata, in the form of package txtar.
type archive struct {
	files    map[string]string
	template *chat.Template
}

func openArchive(t testing.TB, path string) archive {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	name := ""
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(n, " --\n") {
			name = strings.TrimSuffix(n, " --\n")
			continue
		}
		files[name] += line
	}
	for name, text := range files {
		files[name] = strings.TrimSuffix(text, "\n")
	}
	var tokens map[string]string
	if err := json.Unmarshal([]byte(files["tokens"]), &tokens); err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(files["template"], tokens["bos_token"], tokens["eos_token"])
	if err != nil {
		t.Fatal(err)
	}
	return archive{files, template}
}

// TestTemplates compares with Python's Jinja2 for the same template (testdata/expected.py).
func TestTemplates(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) < 9 {
		t.Fatalf("found %d archives, %v", len(paths), err)
	}
	for _, path := range paths {
		a := openArchive(t, path)
		for name, text := range a.files {
			base, ok := strings.CutSuffix(name, ".json")
			if !ok {
				continue
			}
			t.Run(filepath.Base(path)+"/"+base, func(t *testing.T) {
				messages, o := parseCase(t, text)
				got, err := a.template.Render(t.Context(), messages, o)
				if want, ok := a.files[base+".error"]; ok {
					var refused *chat.RefusedError
					if !errors.As(err, &refused) || refused.Reason != want {
						t.Fatalf("got %q, error %v, want it refused with %q", got, err, want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(a.files[base+".want"], got); diff != "" {
					t.Errorf("(-Jinja2 +got):\n%s\nwhole:\n%s", diff, got)
				}
			})
		}
	}
}
