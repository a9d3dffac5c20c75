package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/serve"
)

// shown asks for a description.
func (s *running) shown(t *testing.T, body string) (status int, got map[string]any) {
	t.Helper()
	resp, err := s.http.Post("http://engine/api/show", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return resp.StatusCode, got
}

// TestShow checks the description of a model's file, also after the file was removed.
func TestShow(t *testing.T) {
	path := infertest.File(t, infertest.Spec{})
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(path, written, written); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	parameters := 0.0
	for _, tensor := range f.Tensors() {
		parameters += float64(tensor.Len())
	}
	layers, _ := f.Uint("llama.block_count")
	tensors, size := len(f.Tensors()), float64(f.Size())
	s := run(t, serve.Config{Model: path, Names: []string{"m"}, Threads: 1, Context: 64})
	if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	status, got := s.shown(t, `{"model":"m"}`)
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, got)
	}
	info, _ := got["model_info"].(map[string]any)
	tokens, listed := info["tokenizer.ggml.tokens"]
	if info["general.architecture"] != "llama" || info["general.parameter_count"] != parameters || info["llama.block_count"] != float64(layers) || layers == 0 || tokens != nil || !listed || info["tokenizer.chat_template"] != nil {
		t.Errorf("model_info is %v", info)
	}
	want := map[string]any{"parent_model": "", "format": "gguf", "family": "llama", "families": []any{"llama"}, "parameter_size": fmt.Sprintf("%.0fK", parameters/1e3), "quantization_level": "F32"}
	if diff := cmp.Diff(want, got["details"]); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if got["size"] != size || size == 0 {
		t.Errorf("the size is %v, want %v", got["size"], size)
	}
	if list, _ := got["tensors"].([]any); len(list) != tensors {
		t.Errorf("%d tensors, want %d", len(list), tensors)
	}
	if got["modified_at"] != "2026-01-02T03:04:05Z" || !strings.HasPrefix(got["parameters"].(string), "num_ctx                        64\nstop ") {
		t.Errorf("modified_at %v, parameters %q", got["modified_at"], got["parameters"])
	}
}

// TestShowPico checks a model with its own chat template that is not a file.
func TestShowPico(t *testing.T) {
	s := run(t, serve.Config{Model: pico.Name, Threads: 1})
	status, got := s.shown(t, `{"model":"pico"}`)
	if diff := cmp.Diff([]any{"completion"}, got["capabilities"]); diff != "" || status != http.StatusOK {
		t.Errorf("%d, capabilities (-want +got):\n%s", status, diff)
	}
	if modified, err := time.Parse(time.RFC3339, got["modified_at"].(string)); err != nil || modified.Year() < 2026 {
		t.Errorf("modified_at is %v, %v", got["modified_at"], err)
	}
	if details, _ := got["details"].(map[string]any); details["quantization_level"] != "Q8_0" || !strings.Contains(got["template"].(string), "<|im_start|>") {
		t.Errorf("details %v, template %q", details, got["template"])
	}
	for body, want := range map[string]int{`{"model":"other"}`: 404, `{"model":"pico","verbose":true}`: 400, `{`: 400} {
		if status, got := s.shown(t, body); status != want {
			t.Errorf("%s: %d %v, want %d", body, status, got, want)
		}
	}
}

// TestSides checks a text whose middle is cut because it is too long.
func TestSides(t *testing.T) {
	s := run(t, serve.Config{Model: pico.Name, Threads: 1})
	vector := func(fields string) string {
		t.Helper()
		resp, err := s.http.Post("http://engine/v1/embeddings", "application/json", strings.NewReader(`{`+fields+`}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got struct {
			Data []struct{ Embedding json.RawMessage }
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got.Data) != 1 {
			t.Fatalf("%s: %s, %v", fields, resp.Status, err)
		}
		return string(got.Data[0].Embedding)
	}
	const text = `"input":"red blue green"`
	resp, err := s.http.Post("http://engine/tokenize", "application/json", strings.NewReader(`{"prompt":"red blue green"}`))
	if err != nil {
		t.Fatal(err)
	}
	var ids struct{ Tokens []int }
	err = json.NewDecoder(resp.Body).Decode(&ids)
	if err = errors.Join(err, resp.Body.Close()); err != nil || len(ids.Tokens) < 3 {
		t.Fatal(ids, err)
	}
	n := len(ids.Tokens)
	first, last := vector(fmt.Sprintf(`"input":[%d,%d]`, ids.Tokens[0], ids.Tokens[1])), vector(fmt.Sprintf(`"input":[%d,%d]`, ids.Tokens[n-2], ids.Tokens[n-1]))
	if got := vector(text + `,"truncate_prompt_tokens":2,"truncation_side":"right"`); got != first {
		t.Error("cut at the right: want the vector of the first tokens")
	}
	for _, side := range []string{``, `,"truncation_side":"left"`} {
		if got := vector(text + `,"truncate_prompt_tokens":2` + side); got != last || last == first {
			t.Errorf("cut at the left%s: want the vector of the last tokens", side)
		}
	}
	resp, err = s.http.Post("http://engine/v1/embeddings", "application/json", strings.NewReader(`{`+text+`,"truncation_side":"middle"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(raw), `"param":"truncation_side"`) {
		t.Errorf("%s %s", resp.Status, raw)
	}
}
