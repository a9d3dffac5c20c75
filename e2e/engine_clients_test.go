package e2e

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

// adapters declares pico with both of its adapters.
const adapters = "testdata/adapters.yaml"

// TestEngineGo asks the engine for everything that it can, with the official Go
// client, through the activator and the function.
func TestEngineGo(t *testing.T) {
	t.Parallel()
	p := newServer(t, "-f", absolute(t, adapters), "--trusted-peers", "127.0.0.1")
	c := newOpenAI(p, option.WithMaxRetries(0))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for name, test := range map[string]func(context.Context, *testing.T, openai.Client){
		"adapters": testAdapters, "schema": testSchema, "tools": testTools, "streamed tools": testStreamedTools,
		"vectors": testVectors, "log probabilities": testLogprobs, "scores of a prompt": testPromptLogprobs,
		"several texts": testSeveral, "cache": testCache, "priority": testPriority,
	} {
		t.Run(name, func(t *testing.T) { test(ctx, t, c) })
	}
}

// certain is a chat whose answer holds no chance.
func certain(model, prompt string) openai.ChatCompletionNewParams {
	q := chat(model, prompt)
	q.Temperature = openai.Float(0)
	return q
}

// testAdapters asks for each by its name, which is as good as a model's.
func testAdapters(ctx context.Context, t *testing.T, c openai.Client) {
	list, err := c.Models.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	for _, m := range list.Data {
		var card struct{ Parent string }
		if err := json.Unmarshal([]byte(m.RawJSON()), &card); err != nil {
			t.Error(err)
		}
		parents[m.ID] = card.Parent
	}
	if diff := cmp.Diff(map[string]string{"pico": "", "shout": "pico", "pirate": "pico"}, parents); diff != "" {
		t.Errorf("models and their parents (-want +got):\n%s", diff)
	}
	g := corpus.New(1, corpus.HeldOut)
	for _, style := range corpus.Styles {
		for _, skill := range []corpus.Skill{corpus.Echo, corpus.Reverse, corpus.Count} {
			prompt := g.SampleOf(skill).Prompt()
			got, err := c.Chat.Completions.New(ctx, certain(style.Name, prompt))
			if err != nil {
				t.Fatal(err)
			}
			if err := style.Check(prompt, got.Choices[0].Message.Content); err != nil {
				t.Errorf("%s: %v", style.Name, err)
			}
			if got.Model != style.Name {
				t.Errorf("the answer of %s names the model %q", style.Name, got.Model)
			}
		}
	}
	if text, err := streamed(c.Chat.Completions.NewStreaming(ctx, certain("shout", "echo apple pear"))); text != "APPLE PEAR" {
		t.Errorf("shout streams %q, %v", text, err)
	}
}

// testVectors compares what must be the same: both encodings, equal texts, fewer dimensions.
func testVectors(ctx context.Context, t *testing.T, c openai.Client) {
	texts := openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"echo red", "echo blue", "echo red"}}
	got, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "pico", Input: texts, EncodingFormat: "float"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 3 || got.Usage.PromptTokens != got.Usage.TotalTokens || got.Usage.PromptTokens == 0 {
		t.Fatalf("%d vectors, usage %+v", len(got.Data), got.Usage)
	}
	for i, d := range got.Data {
		if d.Index != int64(i) || math.Abs(dot(d.Embedding, d.Embedding)-1) > 1e-5 {
			t.Errorf("vector %d has the index %d and the square %v, want 1", i, d.Index, dot(d.Embedding, d.Embedding))
		}
	}
	red, blue := got.Data[0].Embedding, got.Data[1].Embedding
	if !slices.Equal(red, got.Data[2].Embedding) || slices.Equal(red, blue) {
		t.Error("equal texts have other vectors, or different ones the same")
	}

	var encoded struct{ Data []struct{ Embedding string } }
	if err := c.Post(ctx, "embeddings", openai.EmbeddingNewParams{Model: "pico", Input: texts, EncodingFormat: "base64"}, &encoded); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded.Data[1].Embedding)
	if err != nil || len(raw) != 4*len(blue) {
		t.Fatalf("%d bytes for %d numbers, %v", len(raw), len(blue), err)
	}
	for i, want := range blue {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != float32(want) {
			t.Fatalf("number %d is %v in Base64, %v as a number", i, got, want)
		}
	}

	few, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "pico", Input: texts, Dimensions: openai.Int(16), EncodingFormat: "float"})
	if err != nil {
		t.Fatal(err)
	}
	scale := math.Sqrt(dot(red[:16], red[:16]))
	for i, got := range few.Data[0].Embedding {
		if math.Abs(got-red[i]/scale) > 1e-6 || len(few.Data[0].Embedding) != 16 {
			t.Fatalf("number %d of 16 dimensions is %v, want %v", i, got, red[i]/scale)
		}
	}
	_, err = c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "pico", Input: texts, Dimensions: openai.Int(100000)})
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "dimensions" {
		t.Errorf("too many dimensions: %v", err)
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// testLogprobs: the tokens make up the text, and a greedy one is the most probable.
func testLogprobs(ctx context.Context, t *testing.T, c openai.Client) {
	q := certain("pico", "reverse alpha beta gamma")
	q.Logprobs, q.TopLogprobs = openai.Bool(true), openai.Int(3)
	got, err := c.Chat.Completions.New(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	text, tokens := "", got.Choices[0].Logprobs.Content
	for _, token := range tokens {
		text += token.Token
		if len(token.TopLogprobs) != 3 || token.TopLogprobs[0].Token != token.Token || token.TopLogprobs[0].Logprob != token.Logprob || token.Logprob > 0 {
			t.Errorf("%s", token.RawJSON())
		}
		sum := 0.0
		for i, top := range token.TopLogprobs {
			sum += math.Exp(top.Logprob)
			if i > 0 && top.Logprob > token.TopLogprobs[i-1].Logprob {
				t.Errorf("the alternatives of %q are not in their order: %s", token.Token, token.RawJSON())
			}
		}
		if sum > 1+1e-6 {
			t.Errorf("the probabilities of %q add up to %v", token.Token, sum)
		}
	}
	if text != "gamma beta alpha" || int64(len(tokens)) != got.Usage.CompletionTokens-1 { // without the end token
		t.Errorf("%d tokens are the text %q, the usage says %d", len(tokens), text, got.Usage.CompletionTokens)
	}
}

// testPromptLogprobs asks with vLLM's field.
func testPromptLogprobs(ctx context.Context, t *testing.T, c openai.Client) {
	got, err := c.Chat.Completions.New(ctx, certain("pico", "echo apple pear"), option.WithJSONSet("prompt_logprobs", 2))
	if err != nil {
		t.Fatal(err)
	}
	var extra struct {
		Scores []map[string]struct {
			Logprob float64
			Rank    *int
			Text    string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
	}
	if err := json.Unmarshal([]byte(got.RawJSON()), &extra); err != nil {
		t.Fatal(err)
	}
	if int64(len(extra.Scores)) != got.Usage.PromptTokens || extra.Scores[0] != nil {
		t.Fatalf("%d scores of %d tokens, the first is %v", len(extra.Scores), got.Usage.PromptTokens, extra.Scores[0])
	}
	assistant := extra.Scores[len(extra.Scores)-1] // pico knows well what comes last
	ranks := 0
	for _, s := range assistant {
		if s.Rank != nil && *s.Rank == 1 && s.Text == "\n" && s.Logprob > -0.01 {
			ranks++
		}
	}
	if ranks != 1 || len(assistant) != 2 {
		t.Errorf("the last token of the prompt: %+v", assistant)
	}
}

// testSeveral asks for several texts of one prompt.
func testSeveral(ctx context.Context, t *testing.T, c openai.Client) {
	q := certain("pico", "echo apple pear")
	q.N = openai.Int(4)
	got, err := c.Chat.Completions.New(ctx, q)
	if err != nil || len(got.Choices) != 4 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, choice := range got.Choices {
		if choice.Index != int64(i) || choice.Message.Content != "apple pear" {
			t.Errorf("choice %d: %s", i, choice.RawJSON())
		}
	}
	q = chat("pico", "story cat boat")
	q.N, q.Seed, q.Temperature = openai.Int(3), openai.Int(5), openai.Float(1.5)
	texts := map[string]bool{}
	for range 2 {
		if got, err = c.Chat.Completions.New(ctx, q); err != nil {
			t.Fatal(err)
		}
		for _, choice := range got.Choices {
			texts[choice.Message.Content] = true
		}
	}
	if len(texts) != 3 {
		t.Errorf("two times three texts of one seed are %d different ones, want 3: %v", len(texts), texts)
	}
}

// testCache asks the same twice, and with another salt.
func testCache(ctx context.Context, t *testing.T, c openai.Client) {
	q := certain("pico", "echo "+strings.Repeat("red blue ", 60))
	q.MaxTokens = openai.Int(3)
	var cached []int64
	var prompt int64
	for _, salt := range []string{"mine", "mine", "yours", "mine"} {
		got, err := c.Chat.Completions.New(ctx, q, option.WithJSONSet("cache_salt", salt))
		if err != nil {
			t.Fatal(err)
		}
		cached, prompt = append(cached, got.Usage.PromptTokensDetails.CachedTokens), got.Usage.PromptTokens
	}
	whole := (prompt - 1) / 16 * 16 // the last token is computed always
	if diff := cmp.Diff([]int64{0, whole, 0, whole}, cached); diff != "" || whole < 100 {
		t.Errorf("cached tokens of %d (-want +got):\n%s", prompt, diff)
	}
}

// testPriority: a number is taken, anything else is not.
func testPriority(ctx context.Context, t *testing.T, c openai.Client) {
	for _, priority := range []int{-5, 0, 7} {
		got, err := c.Chat.Completions.New(ctx, certain("pico", "upper apple"), option.WithJSONSet("priority", priority))
		if err != nil || got.Choices[0].Message.Content != "APPLE" {
			t.Errorf("priority %d: %v, %v", priority, got, err)
		}
	}
	for _, wrong := range []any{"high", 1.5, 1 << 40} {
		_, err := c.Chat.Completions.New(ctx, certain("pico", "upper apple"), option.WithJSONSet("priority", wrong))
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "priority" {
			t.Errorf("priority %v: %v", wrong, err)
		}
	}
}

// TestEngineNode does the same with the official JavaScript client.
func TestEngineNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "-f", absolute(t, adapters), "--trusted-peers", "127.0.0.1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "engine.mjs", p.server.url)
}
