package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/serve"
)

// user returns a conversation of one message.
func user(text string) []openai.ChatCompletionMessageParamUnion {
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}
}

// TestStructuredWithSDK has the official client ask the shipped model for forms and calls.
func TestStructuredWithSDK(t *testing.T) {
	s := run(t, serve.Config{Model: "pico"})
	item := map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"name", "count"},
		// A map would lose the order, in which the model is to write the properties.
		"properties": json.RawMessage(`{"name":{"type":"string","maxLength":12},"count":{"type":"integer","minimum":1,"maximum":9}}`),
	}
	got, err := s.sdk.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "pico", Messages: user("json name=alice item=lamp"), Temperature: openai.Float(0),
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &openai.ResponseFormatJSONSchemaParam{
			JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "item", Schema: item, Strict: openai.Bool(true)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Name  string
		Count int
	}
	if err := json.Unmarshal([]byte(got.Choices[0].Message.Content), &answer); err != nil || answer.Name != "alice" || answer.Count < 1 || answer.Count > 9 {
		t.Errorf("%q: %+v, %v", got.Choices[0].Message.Content, answer, err)
	}

	tools := openai.ChatCompletionNewParams{
		Model: "pico", Messages: user("json name=alice item=lamp"), Temperature: openai.Float(0), MaxTokens: openai.Int(200), ParallelToolCalls: openai.Bool(false),
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "store", Parameters: item}),
		},
		ToolChoice: openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")},
	}
	whole, err := s.sdk.Chat.Completions.New(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	calls := whole.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "store" || whole.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("calls: %+v", whole.Choices[0])
	}
	stream := s.sdk.Chat.Completions.NewStreaming(t.Context(), tools)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatalf("the SDK can't add %s", stream.Current().RawJSON())
		}
	}
	streamed := all.Choices[0].Message.ToolCalls
	if err := stream.Err(); err != nil || len(streamed) != 1 || streamed[0].Function.Name+streamed[0].Function.Arguments != calls[0].Function.Name+calls[0].Function.Arguments || streamed[0].ID == "" {
		t.Errorf("streamed calls: %+v, %v; want %+v", streamed, err, calls)
	}
	// The call and its answer go back into the conversation.
	tools.Messages = append(tools.Messages, whole.Choices[0].Message.ToParam(), openai.ToolMessage("stored", calls[0].ID))
	tools.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
	if _, err := s.sdk.Chat.Completions.New(t.Context(), tools); err != nil {
		t.Errorf("the conversation goes on: %v", err)
	}
}

// TestEmbeddingsWithSDK compares both encodings, as the official client reads them.
func TestEmbeddingsWithSDK(t *testing.T) {
	s := run(t, serve.Config{Model: "pico"})
	ask := openai.EmbeddingNewParams{Model: "pico", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"boat", "convert 3 kg to g"}}}
	got, err := s.sdk.Embeddings.New(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || got.Data[1].Index != 1 || got.Usage.PromptTokens == 0 || slices.Equal(got.Data[0].Embedding, got.Data[1].Embedding) {
		t.Errorf("embeddings: %+v", got.Usage)
	}
	sum := 0.0
	for _, x := range got.Data[0].Embedding {
		sum += x * x
	}
	if math.Abs(sum-1) > 1e-5 {
		t.Errorf("the length of a vector is %v", math.Sqrt(sum))
	}
}

// TestAdaptersHaveRoom checks that with room for one adapter a second is refused until the first is unloaded.
func TestAdaptersHaveRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shout")
	copyAdapter(t, pico.AdapterPaths["shout"], path)
	s := run(t, serve.Config{Model: "pico", MaxAdapters: 1})
	for k, step := range []struct {
		path, name string
		status     int
		says       string
	}{
		{"/v1/load_lora_adapter", "one", http.StatusOK, "added"},
		{"/v1/load_lora_adapter", "two", http.StatusBadRequest, "--max-loras"},
		{"/v1/unload_lora_adapter", "one", http.StatusOK, "removed"},
		{"/v1/load_lora_adapter", "two", http.StatusOK, "added"},
	} {
		resp, err := s.http.Post("http://engine"+step.path, "application/json", strings.NewReader(fmt.Sprintf(`{"lora_name":%q,"lora_path":%q}`, step.name, path)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != step.status || !strings.Contains(string(text), step.says) {
			t.Errorf("step %d: %d %s (%v), want %d and %q", k, resp.StatusCode, text, err, step.status, step.says)
		}
	}
	two := serve.Config{Model: "pico", MaxAdapters: 1, Adapters: map[string]string{"one": path, "two": path}}
	if err := two.Validate(); err == nil || !strings.Contains(err.Error(), "max-loras") {
		t.Errorf("two from the start, with room for one: %v", err)
	}
}

// TestAdapters loads an adapter beside one that was there from the start, asks both by name, and unloads one.
func TestAdapters(t *testing.T) {
	paths := map[string]string{}
	for name, path := range pico.AdapterPaths {
		paths[name] = filepath.Join(t.TempDir(), filepath.Base(path))
		copyAdapter(t, path, paths[name])
	}
	s := run(t, serve.Config{Model: "pico", Adapters: map[string]string{"shout": paths["shout"]}})
	ask := func(model string) string {
		t.Helper()
		got, err := s.sdk.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: model, Messages: user("echo boat cat"), Temperature: openai.Float(0)})
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		if got.Model != model {
			t.Errorf("%s answers as %s", model, got.Model)
		}
		return got.Choices[0].Message.Content
	}
	change := func(path, body string) (int, string) {
		t.Helper()
		resp, err := s.http.Post("http://engine"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	load := `{"lora_name":"pirate","lora_path":"` + paths["pirate"] + `"}`
	if status, text := change("/v1/load_lora_adapter", load); status != http.StatusOK || !strings.Contains(text, "pirate") {
		t.Fatalf("load: %d %s", status, text)
	}
	if status, text := change("/v1/load_lora_adapter", load); status != http.StatusBadRequest || !strings.Contains(text, "lora_name") {
		t.Errorf("load again: %d %s", status, text)
	}
	if status, text := change("/v1/load_lora_adapter", `{"lora_name":"x","lora_path":"/`+strings.Repeat("x", 5000)+`"}`); status != http.StatusBadRequest || len(text) > 500 {
		t.Errorf("a long path: %d %s", status, text)
	}
	plain, loud, rough := ask("pico"), ask("shout"), ask("pirate")
	if plain != "boat cat" || loud != "BOAT CAT" || !strings.HasSuffix(rough, "arr!") {
		t.Errorf("answers %q, %q, %q", plain, loud, rough)
	}
	list, err := s.sdk.Models.List(t.Context(), option.WithMaxRetries(0))
	if err != nil || len(list.Data) != 3 || list.Data[1].ID != "pirate" || !strings.Contains(list.Data[1].RawJSON(), `"parent":"pico"`) {
		t.Errorf("models: %+v, %v", list, err)
	}
	if status, text := change("/v1/unload_lora_adapter", `{"lora_name":"pirate"}`); status != http.StatusOK {
		t.Errorf("unload: %d %s", status, text)
	}
	_, err = s.sdk.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "pirate", Messages: user("x")})
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound || refused.Code != "model_not_found" || refused.Param != "model" ||
		!strings.HasSuffix(refused.Message, `"pirate" does not exist here: GET /v1/models lists what does`) {
		t.Errorf("an unloaded adapter: %v", err)
	}
	s.post(t, "/sleep?level=2")
	s.post(t, "/wake_up")
	if again := ask("shout"); again != loud {
		t.Errorf("after a sleep: %q", again)
	}
}

// copyAdapter writes an adapter of the program to a path.
func copyAdapter(t *testing.T, from, to string) {
	t.Helper()
	write := func(from, to string) {
		data, err := pico.Adapters.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := pico.Adapters.ReadDir(from)
	if err != nil {
		write(from, to)
		return
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		write(from+"/"+e.Name(), filepath.Join(to, e.Name()))
	}
}
