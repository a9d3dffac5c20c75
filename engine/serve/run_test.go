package serve_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/serve"
)

// running is a server of a real model, on a Unix socket.
type running struct {
	http *http.Client
	sdk  openai.Client
	stop context.CancelFunc
	done chan error // Run's end
}

// run serves until the test ends.
func run(t *testing.T, cfg serve.Config) *running {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	cfg.Listen = "unix:" + socket
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	s := &running{stop: stop, done: make(chan error, 1)}
	go func() {
		err := serve.Run(ctx, cfg, in)
		in.CloseWithError(io.EOF)
		s.done <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no announcement: %v, run: %v", err, <-s.done)
	}
	if want := "listening on unix:" + socket + "\n"; line != want {
		t.Errorf("announced %q, want %q", line, want)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	s.http = &http.Client{Transport: transport}
	s.sdk = openai.NewClient(option.WithBaseURL("http://engine/v1"), option.WithAPIKey("none"), option.WithHTTPClient(s.http), option.WithMaxRetries(0))
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err, open := <-s.done; open && err != nil {
			t.Errorf("run: %v", err)
		}
		if _, err := os.Stat(socket); err == nil {
			t.Error("the socket is still there")
		}
	})
	return s
}

func (s *running) post(t *testing.T, path string) string {
	t.Helper()
	resp, err := s.http.Post("http://engine"+path, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("POST %s: %d %s, %v", path, resp.StatusCode, data, err)
	}
	return string(data)
}

// TestPicoWithSDK talks to the shipped model with OpenAI's own client, across sleeps of both levels.
func TestPicoWithSDK(t *testing.T) {
	s := run(t, serve.Config{Model: "pico"})
	ask := openai.ChatCompletionNewParams{
		Model:       "pico",
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage("convert 3 kg to g")},
		Temperature: openai.Float(0),
	}
	const want = "3000 g"
	check := func(when string) {
		t.Helper()
		got, err := s.sdk.Chat.Completions.New(t.Context(), ask)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if text := got.Choices[0].Message.Content; text != want || got.Choices[0].FinishReason != "stop" || got.Usage.TotalTokens == 0 {
			t.Errorf("%s: %q (%s), want %q", when, text, got.Choices[0].FinishReason, want)
		}
	}
	check("first")
	for _, level := range []string{"1", "2"} {
		s.post(t, "/sleep?level="+level)
		s.post(t, "/wake_up")
		check("after a sleep of level " + level)
	}

	stream := s.sdk.Chat.Completions.NewStreaming(t.Context(), ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatalf("the SDK can't add %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil || all.Choices[0].Message.Content != want || all.Choices[0].FinishReason != "stop" {
		t.Errorf("stream: %+v, %v", all.Choices, err)
	}

	list, err := s.sdk.Models.List(t.Context())
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != "pico" {
		t.Errorf("models: %+v, %v", list, err)
	}

	s.post(t, "/sleep")
	_, err = s.sdk.Chat.Completions.New(t.Context(), ask)
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != 503 || refused.Code != "asleep" {
		t.Errorf("while asleep: %v", err)
	}
}

// TestGeneratedModels runs both vocabularies and architectures from a file, with the legacy endpoint.
func TestGeneratedModels(t *testing.T) {
	for name, spec := range map[string]infertest.Spec{"llama-bpe": {}, "llama-spm": {SPM: true}, "qwen2": {Arch: "qwen2", Vocab: 500}} {
		t.Run(name, func(t *testing.T) {
			s := run(t, serve.Config{Model: infertest.File(t, spec), Names: []string{"random"}, Threads: 1, Context: 64})
			params := openai.CompletionNewParams{
				Model:  "random",
				Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"what is the name", "of the river"}},
				N:      openai.Int(2), MaxTokens: openai.Int(5), Seed: openai.Int(1), Echo: openai.Bool(true), Logprobs: openai.Int(2),
			}
			first, err := s.sdk.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			s.post(t, "/sleep?level=2")
			s.post(t, "/wake_up")
			again, err := s.sdk.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if len(first.Choices) != 4 || !strings.HasPrefix(first.Choices[2].Text, "of the river") || first.Choices[0].Text == first.Choices[1].Text {
				t.Errorf("choices: %+v", first.Choices)
			}
			for i, c := range first.Choices {
				if c.Text != again.Choices[i].Text {
					t.Errorf("choice %d with the same seed: %q, then %q", i, c.Text, again.Choices[i].Text)
				}
				if n := len(c.Logprobs.Tokens); n < 6 || len(c.Logprobs.TextOffset) != n || len(c.Logprobs.TokenLogprobs) != n {
					t.Errorf("choice %d: log probabilities of %d tokens, %d offsets", i, n, len(c.Logprobs.TextOffset))
				}
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(broken, []byte("GGUF\x03"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cfg  serve.Config
		want string
	}{
		{serve.Config{}, "no model"},
		{serve.Config{Model: "/no/such.gguf"}, "/no/such.gguf"},
		{serve.Config{Model: broken}, broken},
		{serve.Config{Model: "pico", Threads: -1}, "threads is -1"},
		{serve.Config{Model: "pico", Names: []string{""}}, "empty model name"},
		{serve.Config{Model: "pico", Names: []string{"pic\xff"}}, "not valid UTF-8"},
		{serve.Config{Model: "pico", Shards: 2, MaxSeqs: 600}, "600 sequences at once"},
		{serve.Config{Model: "pico", DrainTimeout: -1}, "drain-timeout is -1"},
		{serve.Config{Model: "pico", Adapters: map[string]string{"pico": "/x"}}, "not the model's"},
		{serve.Config{Model: "pico", Adapters: map[string]string{"a,b": "/x"}}, "comma"},
		{serve.Config{Model: "pico", Context: 1 << 20}, "1048576"},
		{serve.Config{Model: "pico", Listen: "0.0.0.0:0"}, "this host only"},
	} {
		var out strings.Builder
		err := serve.Run(t.Context(), test.cfg, &out)
		if err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("run %+v: %v, announced %q; want an error with %q", test.cfg, err, out.String(), test.want)
		}
	}
}
