package runtime

import (
	"bytes"
	"cmp"
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
	// body is that of the request, without the model: for a prompt, and at most so many tokens.
	body func(prompt string, tokens int) map[string]any
	// shows is what an answer shows, or why it shows nothing; not by which way.
	shows func(raw []byte) (Answer, error)
}

// ways are tried in this order; the one that worked is remembered until the next
// launch. Models that only embed or rank can't generate, and their servers say so.
var ways = []way{
	{"/v1/completions", func(prompt string, tokens int) map[string]any {
		return map[string]any{"max_tokens": tokens, "temperature": 0, "prompt": prompt}
	}, generated},
	{"/v1/chat/completions", func(prompt string, tokens int) map[string]any {
		return map[string]any{"max_tokens": tokens, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	}, generated},
	{"/v1/embeddings", func(prompt string, _ int) map[string]any { return map[string]any{"input": prompt} }, embedded},
	{"/v1/rerank", func(prompt string, _ int) map[string]any {
		return map[string]any{"query": prompt, "documents": []string{prompt}}
	}, ranked},
}

// probePrompt is what a probe asks: that there is an answer is all that counts.
const probePrompt = "a"

// probe makes the server compute one token in a way that it has.
func (c *client) probe(ctx context.Context, e api.Endpoint, model string) error {
	_, err := c.show(ctx, e, model, probePrompt, 1)
	return err
}

// show has the server answer a prompt in a way that it has. A server that has
// none of them, or does not know the model yet, is asked in every way again.
func (c *client) show(ctx context.Context, e api.Endpoint, model, prompt string, tokens int) (Answer, error) {
	var first error
	for i := int(c.way.Load()); i < len(ways); i++ {
		answer, err := c.try(ctx, e, ways[i], model, ways[i].body(prompt, tokens))
		switch {
		case err == nil:
			c.way.Store(int32(i))
			return answer, nil
		case !incapable(err):
			return Answer{}, err
		case first == nil:
			first = err
		}
	}
	c.way.Store(0)
	return Answer{}, first
}

// forget lets the next launch be asked in every way.
func (c *client) forget() { c.way.Store(0) }

func (c *client) try(ctx context.Context, e api.Endpoint, w way, model string, body map[string]any) (Answer, error) {
	body["model"] = model
	raw, err := c.call(ctx, http.MethodPost, e, w.path, body)
	if err != nil {
		return Answer{}, err
	}
	answer, err := w.shows(raw)
	if err != nil {
		return Answer{}, fmt.Errorf("probe by %s: %w", w.path, err)
	}
	answer.By = w.path
	return answer, nil
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
func generated(raw []byte) (Answer, error) {
	var g struct {
		Choices []struct {
			Text    string `json:"text"`
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
				Thoughts  string `json:"reasoning"` // vLLM's name for the same
			} `json:"message"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		return Answer{}, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(g.Choices) == 0 {
		return Answer{}, errors.New("the answer has no choices")
	}
	c := g.Choices[0]
	if c.Text == "" && c.Message.Content == "" && c.Message.Reasoning+c.Message.Thoughts == "" && g.Usage.CompletionTokens == 0 &&
		c.FinishReason != "stop" && c.FinishReason != "length" {
		return Answer{}, errors.New("the answer has no token: no text, no usage, no finish_reason")
	}
	return inText("", c.Message.Reasoning+c.Message.Thoughts+c.Message.Content+c.Text), nil
}

// embedded wants a vector, as numbers or as base64.
func embedded(raw []byte) (Answer, error) {
	var v struct {
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return Answer{}, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(v.Data) == 0 || len(v.Data[0].Embedding) <= len(`[]`) {
		return Answer{}, errors.New("the answer has no embedding")
	}
	var numbers []float64
	_ = json.Unmarshal(v.Data[0].Embedding, &numbers) // base64 is not asked for; where it comes, it is no answer to compare
	return inNumbers("", numbers), nil
}

// ranked wants a score. SGLang answers with a list alone.
func ranked(raw []byte) (Answer, error) {
	var v struct {
		Results []struct {
			Score    *float64 `json:"relevance_score"`
			OfSGLang *float64 `json:"score"`
		} `json:"results"`
	}
	var into any = &v
	if bytes.HasPrefix(raw, []byte{'['}) {
		into = &v.Results
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return Answer{}, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(v.Results) > 0 {
		if score := cmp.Or(v.Results[0].Score, v.Results[0].OfSGLang); score != nil {
			return Answer{Numbers: []float64{*score}}, nil
		}
	}
	return Answer{}, errors.New("the answer has no score")
}
