package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

type question struct {
	model  string
	lora   string // SGLang's name of an adapter
	prompt string
	tokens int // at most
	probs  int // log probabilities per position
}

type way struct {
	path  string
	body  func(q question) map[string]any  // without the model
	shows func(raw []byte) (Answer, error) // without By; an error says why raw shows nothing
}

// ways are tried in this order; the one that worked is remembered until the next launch.
var ways = []way{
	{"/v1/completions", func(q question) map[string]any {
		body := map[string]any{"max_tokens": q.tokens, "temperature": 0, "prompt": q.prompt}
		if q.probs > 0 {
			body["logprobs"] = q.probs
		}
		return body
	}, generated},
	{"/v1/chat/completions", func(q question) map[string]any {
		body := map[string]any{"max_tokens": q.tokens, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": q.prompt}}}
		if q.probs > 0 {
			body["logprobs"], body["top_logprobs"] = true, q.probs
		}
		return body
	}, generated},
	{"/v1/embeddings", func(q question) map[string]any { return map[string]any{"input": q.prompt} }, embedded},
	{"/v1/rerank", func(q question) map[string]any {
		return map[string]any{"query": q.prompt, "documents": []string{q.prompt}}
	}, ranked},
}

const probePrompt = "a"

func (c *client) probe(ctx context.Context, e api.Endpoint, model string) error {
	_, err := c.show(ctx, e, question{model: model, prompt: probePrompt, tokens: 1})
	return err
}

// show remembers the way that worked; if none does, or the model is not known yet, the next call tries all again.
func (c *client) show(ctx context.Context, e api.Endpoint, q question) (Answer, error) {
	var first error
	for i := int(c.way.Load()); i < len(ways); i++ {
		answer, err := c.try(ctx, e, ways[i], q)
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

func (c *client) forget() { c.way.Store(0) }

func (c *client) try(ctx context.Context, e api.Endpoint, w way, q question) (Answer, error) {
	body := w.body(q)
	body["model"] = q.model
	if q.lora != "" {
		body["lora_path"] = q.lora
	}
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

// incapable reports whether the server or its model does not support a way. A 404 may also mean an unknown model; then every way fails so.
func incapable(err error) bool {
	var status *statusError
	return Missing(err) || errors.As(err, &status) && status.status == http.StatusBadRequest &&
		says(err, "does not support", "not supported", "doesn't support", "unsupported")
}

// generated requires a token; one that ends the text at once has an empty text.
func generated(raw []byte) (Answer, error) {
	var g struct {
		Choices []struct {
			Text    string `json:"text"`
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
				Thoughts  string `json:"reasoning"` // vLLM's name
			} `json:"message"`
			FinishReason string          `json:"finish_reason"`
			LogProbs     json.RawMessage `json:"logprobs"`
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
	answer := inText("", c.Message.Reasoning+c.Message.Thoughts+c.Message.Content+c.Text)
	answer.Numbers = logProbs(c.LogProbs)
	return answer, nil
}

// logProbs returns those of the most likely tokens, position by position, descending; nil: unknown format.
func logProbs(raw json.RawMessage) (all []float64) {
	var l struct {
		Text []map[string]float64 `json:"top_logprobs"` // of a completion
		Chat []struct {
			Top []struct {
				LogProb float64 `json:"logprob"`
			} `json:"top_logprobs"`
		} `json:"content"`
	}
	if json.Unmarshal(raw, &l) != nil {
		return nil
	}
	add := func(place []float64) {
		slices.SortFunc(place, func(a, b float64) int { return cmp.Compare(b, a) })
		all = append(all, place[:min(len(place), canaryProbs)]...)
	}
	for _, place := range l.Text {
		add(slices.Collect(maps.Values(place)))
	}
	for _, place := range l.Chat {
		var values []float64
		for _, t := range place.Top {
			values = append(values, t.LogProb)
		}
		add(values)
	}
	return all[:min(len(all), canaryNumbers)]
}

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
	_ = json.Unmarshal(v.Data[0].Embedding, &numbers) // base64 is not asked for, nor compared
	return inNumbers("", numbers), nil
}

// ranked also reads SGLang's bare list.
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
