package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// way is a way to make a server show that its model works.
type way struct {
	path string
	// body is that of the request, without the model.
	body map[string]any
	// shows says why an answer shows nothing.
	shows func(raw []byte) error
}

// ways are tried in this order; the one that worked is remembered until the next
// launch. Models that only embed or rank can't generate, and their servers say so.
var ways = []way{
	{"/v1/completions", map[string]any{"max_tokens": 1, "temperature": 0, "prompt": "a"}, generated},
	{"/v1/chat/completions", map[string]any{"max_tokens": 1, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": "a"}}}, generated},
	{"/v1/embeddings", map[string]any{"input": "a"}, embedded},
	{"/v1/rerank", map[string]any{"query": "a", "documents": []string{"a"}}, ranked},
}

// probe makes the server compute one token in a way that it has. A server that has
// none of them, or does not know the model yet, is asked in every way again.
func (c *client) probe(ctx context.Context, e api.Endpoint, model string) error {
	var first error
	for i := int(c.way.Load()); i < len(ways); i++ {
		err := c.try(ctx, e, model, ways[i])
		switch {
		case err == nil:
			c.way.Store(int32(i))
			return nil
		case !incapable(err):
			return err
		case first == nil:
			first = err
		}
	}
	c.way.Store(0)
	return first
}

// forget lets the next launch be asked in every way.
func (c *client) forget() { c.way.Store(0) }

func (c *client) try(ctx context.Context, e api.Endpoint, model string, w way) error {
	body := map[string]any{"model": model}
	for k, v := range w.body {
		body[k] = v
	}
	raw, err := c.call(ctx, http.MethodPost, e, w.path, body)
	if err != nil {
		return err
	}
	if err := w.shows(raw); err != nil {
		return fmt.Errorf("probe by %s: %w", w.path, err)
	}
	return nil
}

// incapable says whether err means that the server or its model has no such way: a
// path that is not there (404 may also mean that the model is unknown; then every
// way says so), or a refusal that says it.
func incapable(err error) bool {
	var status *statusError
	if missing(err) || errors.As(err, &status) && status.status == http.StatusNotImplemented {
		return true
	}
	return errors.As(err, &status) && status.status == http.StatusBadRequest &&
		says(err, "does not support", "not supported", "doesn't support", "unsupported")
}

// generated wants a token. A first token that ends the text counts: its text is empty.
func generated(raw []byte) error {
	var g struct {
		Choices []struct {
			Text    string `json:"text"`
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
			} `json:"message"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(g.Choices) == 0 {
		return errors.New("the answer has no choices")
	}
	c := g.Choices[0]
	if c.Text == "" && c.Message.Content == "" && c.Message.Reasoning == "" && g.Usage.CompletionTokens == 0 &&
		c.FinishReason != "stop" && c.FinishReason != "length" {
		return errors.New("the answer has no token: no text, no usage, no finish_reason")
	}
	return nil
}

// embedded wants a vector, as numbers or as base64.
func embedded(raw []byte) error {
	var v struct {
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(v.Data) == 0 || len(v.Data[0].Embedding) <= len(`[]`) {
		return errors.New("the answer has no embedding")
	}
	return nil
}

// ranked wants a score.
func ranked(raw []byte) error {
	var v struct {
		Results []struct {
			Score *float64 `json:"relevance_score"`
		} `json:"results"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(v.Results) == 0 || v.Results[0].Score == nil {
		return errors.New("the answer has no score")
	}
	return nil
}
