package clients

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// server is the URL of the server that is asked, without a slash at its end. Its function is "pico".
func server(t *testing.T) string {
	t.Helper()
	url := os.Getenv("ROUSE_CLIENTS_URL")
	if url == "" {
		t.Skip("ROUSE_CLIENTS_URL names no server: the tests in e2e start one and run these")
	}
	return strings.TrimSuffix(url, "/")
}

// onEngine says whether the function runs on Rouse's engine; otherwise it runs on Ollama, which has all these APIs itself.
func onEngine() bool { return os.Getenv("ROUSE_CLIENTS_RUNTIME") != "ollama" }

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// color is a JSON schema with one value.
func color() map[string]any {
	return map[string]any{
		"type": "object", "properties": map[string]any{"color": map[string]any{"type": "string", "enum": []string{"red"}}},
		"required": []string{"color"}, "additionalProperties": false,
	}
}

// person is the schema of {"name":"bob","age":7}. The answer has the order of its properties.
var person = json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`)

// bob is pico's answer for it.
const bob = `{"name":"bob","age":7}`

// isRed says whether a text is an object of color's.
func isRed(text string) bool {
	var got map[string]string
	return json.Unmarshal([]byte(text), &got) == nil && len(got) == 1 && got["color"] == "red"
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
