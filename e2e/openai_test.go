package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// fakes declares functions on runtimes that fail on demand.
const fakes = "testdata/fakes.yaml"

// newOpenAI is the official Go client of a server, as its documentation sets it up.
func newOpenAI(p *place, opts ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(p.server.url + "/v1"), option.WithAPIKey("none")}, opts...)...)
}

func chat(model, prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

func TestOpenAIGo(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "-f", absolute(t, fakes))
	c := newOpenAI(p)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	t.Run("from zero", func(t *testing.T) {
		got, err := c.Chat.Completions.New(ctx, chat("pico", "echo apple pear"))
		if err != nil {
			t.Fatal(err)
		}
		if text := got.Choices[0].Message.Content; text != "apple pear" || got.Choices[0].FinishReason != "stop" {
			t.Errorf("answered %q (%s), want %q (stop)", text, got.Choices[0].FinishReason, "apple pear")
		}
		if u := got.Usage; u.PromptTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
			t.Errorf("usage %+v does not add up", u)
		}
	})
	t.Run("models", func(t *testing.T) { testModels(ctx, t, c) })
	t.Run("stream", func(t *testing.T) { testStream(ctx, t, c) })
	t.Run("stream from zero", func(t *testing.T) {
		// The runtime loads for longer than the server stays silent: comments come first.
		if text, err := streamed(c.Chat.Completions.NewStreaming(ctx, limited(chat("slow", "count"), 3))); err != nil || text != "t0 t1 t2 " {
			t.Errorf("answered %q, %v; want t0 t1 t2", text, err)
		}
	})
	t.Run("completions", func(t *testing.T) {
		got, err := c.Completions.New(ctx, openai.CompletionNewParams{Model: "fake", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("count")}, MaxTokens: openai.Int(4)})
		if err != nil {
			t.Fatal(err)
		}
		if text := got.Choices[0].Text; text != "t0 t1 t2 t3" {
			t.Errorf("answered %q, want t0 t1 t2 t3", text)
		}
	})
	t.Run("errors", func(t *testing.T) { testErrors(ctx, t, c) })
	t.Run("a cut stream is an error", func(t *testing.T) {
		for _, fault := range []string{"cut=3", "eof=3", "exit-after=3"} {
			stream := c.Chat.Completions.NewStreaming(ctx, limited(chat("fake", "count"), 9), option.WithHeader("X-Fault", fault))
			text, err := streamed(stream)
			if err == nil || !strings.HasPrefix("t0 t1 t2 ", text) {
				t.Errorf("%s: answered %q and the error %v, want at most 3 tokens and an error", fault, text, err)
			}
		}
	})
	t.Run("retries", func(t *testing.T) { testRetries(ctx, t, p) })
}

// limited asks for n tokens in the older field, which the fake runtime reads.
func limited(q openai.ChatCompletionNewParams, n int64) openai.ChatCompletionNewParams {
	q.MaxTokens = openai.Int(n) // deprecated by OpenAI, used by everybody
	return q
}

func testModels(ctx context.Context, t *testing.T, c openai.Client) {
	list, err := c.Models.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	if got, want := strings.Join(ids, " "), "fake pico slow stubborn"; got != want {
		t.Errorf("the models are %q, want %q", got, want)
	}
	m, err := c.Models.Get(ctx, "pico")
	if err != nil || m.ID != "pico" || m.Object != "model" || m.Created == 0 {
		t.Errorf("model pico is %+v, %v", m, err)
	}
}

// testStream asks for usage too, which comes last with no choice.
func testStream(ctx context.Context, t *testing.T, c openai.Client) {
	q := chat("pico", "upper apple pear")
	q.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(ctx, q)
	defer stream.Close()
	acc := openai.ChatCompletionAccumulator{}
	chunks, usages := 0, 0
	for stream.Next() {
		chunk := stream.Current()
		if !acc.AddChunk(chunk) {
			t.Errorf("the chunk %s does not fit those before it", chunk.RawJSON())
		}
		chunks++
		if chunk.Usage.TotalTokens > 0 {
			usages++
			if len(chunk.Choices) > 0 {
				t.Errorf("the chunk with the usage has choices: %s", chunk.RawJSON())
			}
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text := acc.Choices[0].Message.Content; text != "APPLE PEAR" {
		t.Errorf("answered %q, want APPLE PEAR", text)
	}
	if usages != 1 || chunks < 3 || acc.Usage.CompletionTokens == 0 {
		t.Errorf("%d chunks, %d with usage (%+v), want several and one", chunks, usages, acc.Usage)
	}
}

// textStream is the part of the client's stream that is used.
type textStream interface {
	Next() bool
	Current() openai.ChatCompletionChunk
	Err() error
	Close() error
}

// streamed is the text of a stream, and how it ended.
func streamed(s textStream) (string, error) {
	defer s.Close()
	var text string
	for s.Next() {
		for _, choice := range s.Current().Choices {
			text += choice.Delta.Content
		}
	}
	return text, s.Err()
}

// testErrors looks at status, code and request id of refusals, as the client gives them.
func testErrors(ctx context.Context, t *testing.T, c openai.Client) {
	long := "echo" + strings.Repeat(" red", 3000)
	for _, tt := range []struct {
		name, model, prompt string
		fault               string
		status              int
		code, words         string
	}{
		{"unknown model", "pica", "echo red", "", 404, "model_not_found", "did you mean pico?"},
		{"long context", "pico", long, "", 400, "context_length_exceeded", "tokens"},
		{"the runtime's own", "fake", "count", "status=422", 422, "", "a failure as told"},
		{"a runtime that does not start", "stubborn", "count", "", 503, "start_failed", "who operates it finds out why"},
	} {
		opts := []option.RequestOption{option.WithMaxRetries(0)}
		if tt.fault != "" {
			opts = append(opts, option.WithHeader("X-Fault", tt.fault))
		}
		_, err := c.Chat.Completions.New(ctx, chat(tt.model, tt.prompt), opts...)
		var e *openai.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: the error is %v, want one of the API", tt.name, err)
			continue
		}
		if e.StatusCode != tt.status || e.Code != tt.code || !strings.Contains(e.Message, tt.words) {
			t.Errorf("%s: status %d, code %q, message %q; want %d, %q and %q", tt.name, e.StatusCode, e.Code, e.Message, tt.status, tt.code, tt.words)
		}
		if e.Response.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: the answer has no x-request-id", tt.name)
		}
	}
}

// testRetries: after a 503 the client asks again by itself.
func testRetries(ctx context.Context, t *testing.T, p *place) {
	tries := 0
	flaky := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if tries++; tries == 1 {
			r.Header.Set("X-Fault", "status=503")
		} else {
			r.Header.Del("X-Fault")
		}
		return next(r)
	})
	c := newOpenAI(p, flaky)
	got, err := c.Chat.Completions.New(ctx, limited(chat("fake", "count"), 2))
	if err != nil || got.Choices[0].Message.Content != "t0 t1" {
		t.Fatalf("after a 503 of the runtime: %v, %v", got, err)
	}
	if tries != 2 {
		t.Errorf("%d tries, want 2", tries)
	}
}
