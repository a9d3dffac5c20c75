package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

// TestUsageOfAbandonedAnswers: a client that leaves before a whole answer comes has used what the engine computed until then,
// in each API, within one token or 1 %. Its prompt is charged as a whole.
func TestUsageOfAbandonedAnswers(t *testing.T) {
	t.Parallel()
	f := newMeasured(t, runtimes["engine"])
	long := strings.Repeat("count red blue green ", 10)
	for _, test := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":400,"ignore_eos":true}`},
		{"two choices", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":200,"n":2,"ignore_eos":true}`},
		{"two prompts", "/v1/completions", `{"model":"m","prompt":[%[1]q,%[1]q],"max_tokens":200,"ignore_eos":true}`},
		{"messages", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":400,"ignore_eos":true}`},
		{"responses", "/v1/responses", `{"model":"m","input":%q,"max_output_tokens":400,"ignore_eos":true}`},
		{"Ollama's chat", "/api/chat", `{"model":"m","messages":[{"role":"user","content":%q}],"stream":false,"options":{"num_predict":400},"ignore_eos":true}`},
		{"Ollama's text", "/api/generate", `{"model":"m","prompt":%q,"stream":false,"options":{"num_predict":400},"ignore_eos":true}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := f.settled(nil)
			var prompt, generated, left int
			told := ""
			defer func() { t.Log(told) }()
			for n := 0; left < 3; n++ { // until it has left three times while the engine generated
				said, answered, err := abandon(t.Context(), f.at, test.path, fmt.Sprintf(test.body, long), time.Duration(n%40)*time.Millisecond/2)
				if err != nil {
					t.Fatal(err)
				}
				prompt, generated = prompt+said.Prompt, generated+said.Tokens()
				if !answered && said.Tokens() > 2 {
					left++
				}
				if n == 400 {
					t.Fatal("the engine was never left while it generated")
				}
			}
			f.settled(func(s samples) bool {
				ofPrompts, computed := s.get("vllm:prompt_tokens_total")-before.get("vllm:prompt_tokens_total"), s.get("vllm:generation_tokens_total")-before.get("vllm:generation_tokens_total")
				told = fmt.Sprintf("%d and %d tokens were reported, %v and %v were computed", prompt, generated, ofPrompts, computed)
				// The engine counts a prompt once its first token has come. It is charged before that.
				return float64(prompt) >= ofPrompts && math.Abs(float64(generated)-computed) <= max(3, computed/100)
			})
		})
	}
}

// settled returns the metrics once no request runs and they are as they should be; nil: once they do not change.
func (f *measuredFunction) settled(is func(samples) bool) samples {
	f.t.Helper()
	last := -1.0
	return f.until(func(s samples) bool {
		now := s.get("vllm:generation_tokens_total")
		same := now == last
		last = now
		return s.get("vllm:num_requests_running") == 0 && (is == nil && same || is != nil && is(s))
	})
}

// abandon asks for a whole answer and leaves after a time. It returns what the instance reports as used then.
func abandon(ctx context.Context, at api.Endpoint, path, body string, after time.Duration) (said relay.Usage, answered bool, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.URL(path), strings.NewReader(body))
	if err != nil {
		return said, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(control.HeaderUsage, "true")
	time.AfterFunc(after, leave)
	resp, err := localhttp.New(1, time.Minute).RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil { // it has not begun
			return said, false, nil
		}
		return said, false, err
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	said.Style = api.EventsOf(path)
	said.Read(raw)
	if told := resp.Header.Get(control.HeaderUsage); told != "" {
		said.Tell(told)
	}
	return said, resp.StatusCode != api.StatusClientClosed, nil
}

// TestLimitOfAKeyThatHangsUp: a key of 200 tokens a minute has no more computed than that, also if its client leaves
// before each answer.
func TestLimitOfAKeyThatHangsUp(t *testing.T) {
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	key, err := p.rouse("keys", "create", "-f", filepath.Join(p.dir, "keys.yaml"), "ci", "--tokens-per-minute", "200")
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t, "--model", "pico", "--keys", "keys.yaml")
	ask := func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url+"/v1/chat/completions", strings.NewReader(`{"model":"pico","messages":[{"role":"user","content":"count red blue green"}],"max_tokens":50,"ignore_eos":true}`))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(key))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := ask(t.Context()); status != http.StatusOK {
		t.Fatal(status, err)
	}
	for n := range 200 {
		ctx, leave := context.WithTimeout(t.Context(), time.Duration(1+n%8)*time.Millisecond)
		_, _ = ask(ctx) // most end with ctx, later ones are refused
		leave()
	}
	if err := retry(func() error { // activators tell now and then
		out, err := p.rouse("usage", "-o", "json")
		if err != nil {
			return err
		}
		var used struct {
			Rows []struct {
				InputTokens, OutputTokens int
			}
		}
		if err := json.Unmarshal([]byte(out), &used); err != nil {
			return err
		}
		total := 0
		for _, row := range used.Rows {
			total += row.InputTokens + row.OutputTokens
		}
		if total < 60 || total > 220 {
			return fmt.Errorf("%d tokens were computed for a key of 200 a minute: %s", total, out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
