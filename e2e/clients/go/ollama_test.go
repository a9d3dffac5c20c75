package clients

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/ollama/ollama/api"
)

// TestOllama: Ollama's own client, with all that it asks a server that it may not change.
func TestOllama(t *testing.T) {
	ctx := bounded(t)
	base := must(url.Parse(server(t)))(t)
	c := api.NewClient(base, http.DefaultClient)
	options := map[string]any{"temperature": 0, "num_predict": 40}
	if err := c.Heartbeat(ctx); err != nil {
		t.Error(err)
	}
	if v := must(c.Version(ctx))(t); v == "" {
		t.Error("no version")
	}
	user := []api.Message{{Role: "user", Content: "echo apple pear"}}
	for _, stream := range []bool{true, false} {
		text, done, lines := "", false, 0
		err := c.Chat(ctx, &api.ChatRequest{Model: "pico", Messages: user, Stream: &stream, Options: options, KeepAlive: &api.Duration{Duration: time.Minute}}, func(r api.ChatResponse) error {
			text, done, lines = text+r.Message.Content, r.Done, lines+1
			if done && (r.DoneReason != "stop" || r.EvalCount == 0 || r.PromptEvalCount == 0 || r.TotalDuration == 0) {
				t.Errorf("the last line: %+v", r)
			}
			return nil
		})
		if err != nil || text != "apple pear" || !done || (lines > 1) != stream {
			t.Errorf("stream %v: %q in %d lines, done: %v, %v", stream, text, lines, done, err)
		}
		text = ""
		err = c.Generate(ctx, &api.GenerateRequest{Model: "pico:latest", Prompt: "echo apple pear", Stream: &stream, Options: options}, func(r api.GenerateResponse) error {
			text += r.Response
			return nil
		})
		if err != nil || text != "apple pear" {
			t.Errorf("generate, stream %v: %q, %v", stream, text, err)
		}
	}

	vectors := must(c.Embed(ctx, &api.EmbedRequest{Model: "pico", Input: []string{"echo red", "echo blue"}}))(t)
	older := must(c.Embeddings(ctx, &api.EmbeddingRequest{Model: "pico", Prompt: "echo red"}))(t)
	if len(vectors.Embeddings) != 2 || len(vectors.Embeddings[0]) != len(older.Embedding) || len(older.Embedding) < 8 {
		t.Errorf("%d vectors, and one of %d numbers", len(vectors.Embeddings), len(older.Embedding))
	}
	show := must(c.Show(ctx, &api.ShowRequest{Model: "pico"}))(t)
	same(t, "format", show.Details.Format, "gguf")
	if list := must(c.List(ctx))(t); len(list.Models) == 0 || list.Models[0].Name == "" {
		t.Errorf("the models are %+v", list)
	}
	if running := must(c.ListRunning(ctx))(t); len(running.Models) == 0 {
		t.Error("no model runs")
	}
	err := c.Chat(ctx, &api.ChatRequest{Model: "nobody", Messages: user}, func(api.ChatResponse) error { return nil })
	if e := (api.StatusError{}); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown model: %v", err)
	}
	text := ""
	err = c.Chat(ctx, &api.ChatRequest{Model: "pico", Messages: []api.Message{{Role: "user", Content: "json name=bob age=7"}}, Format: person, Options: options}, func(r api.ChatResponse) error {
		text += r.Message.Content
		return nil
	})
	if err != nil || text != bob {
		t.Errorf("a form: %q, %v", text, err)
	}
}
