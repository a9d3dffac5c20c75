package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/engine/serve"
)

// stream is an event stream that is read as it comes.
type stream struct {
	*bufio.Reader
	resp   *http.Response
	cancel context.CancelFunc
}

func (c *client) stream(body string) *stream {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://engine/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return &stream{bufio.NewReader(resp.Body), resp, cancel}
}

func TestStreamIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Second)
		began := time.Now()
		s := c.stream(chatBody("x y z", `,"stream":true`))
		defer s.cancel()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the header came after %v, want the first token's second", took)
		}
		for i := range 3 {
			if _, err := s.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if took, want := time.Since(began), time.Duration(i+1)*time.Second; took != want {
				t.Errorf("token %d came after %v, want %v", i, took, want)
			}
			if _, err := s.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestContinuousUsage checks that each chunk has the usage of its choice so far, and the last one the total.
func TestContinuousUsage(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	got := c.post("/v1/completions", `{"model":"parrot","prompt":["say this\n","and that too\n"],"stream":true,"temperature":0,"n":2,"max_tokens":5,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	type usage struct {
		Prompt int `json:"prompt_tokens"`
		Made   int `json:"completion_tokens"`
	}
	each, chunks := map[int]usage{}, 0
	for line := range strings.Lines(got) {
		var chunk struct {
			Choices []struct{ Index int }
			Usage   usage
		}
		data, found := strings.CutPrefix(line, "data: {")
		if !found {
			continue
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if len(chunk.Choices) == 1 {
			i := chunk.Choices[0].Index
			if now := chunk.Usage; now.Prompt == 0 || now.Made < each[i].Made || now.Made > each[i].Made+1 {
				t.Errorf("text %d has used %+v, and %+v before", i, now, each[i])
			}
			each[i] = chunk.Usage
			chunks++
			continue
		}
		want := usage{each[0].Prompt + each[2].Prompt, each[0].Made + each[1].Made + each[2].Made + each[3].Made}
		if chunk.Usage != want || len(each) != 4 || each[0].Prompt == each[2].Prompt {
			t.Errorf("all have used %+v, want %+v of %+v", chunk.Usage, want, each)
		}
	}
	if chunks < 8 {
		t.Errorf("got %d chunks: %s", chunks, got)
	}
}

func TestDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Second)
		s := c.stream(chatBody(strings.Repeat("x", 100), `,"stream":true`))
		if _, err := s.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		s.cancel()
		time.Sleep(2500 * time.Millisecond)
		if stats := c.engine.Stats(); stats.Open != 0 || stats.BlocksUsed != 0 {
			t.Errorf("after the client left: %+v", stats)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://engine/v1/chat/completions", strings.NewReader(chatBody(strings.Repeat("x", 100), "")))
		if _, err := c.Do(r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an answer came: %v", err)
		}
		time.Sleep(2500 * time.Millisecond)
		if stats := c.engine.Stats(); stats.Open != 0 {
			t.Errorf("after the client without a stream left: %+v", stats)
		}
	})
}

func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Second)
		s := c.stream(chatBody("a b c d", `,"stream":true`))
		defer s.cancel()
		if _, err := s.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		c.model.failNext(errors.New("the device fell off"))
		var rest strings.Builder
		if _, err := s.WriteTo(&rest); err != nil {
			t.Fatal(err)
		}
		all := frames(t, strings.TrimPrefix(rest.String(), "\n"))
		last := decode(t, all[len(all)-1])
		if last.Error == nil || last.Error.Code != "runtime_failed" || !strings.Contains(last.Error.Message, "fell off") {
			t.Errorf("the stream ends with %s", all[len(all)-1])
		}
		if strings.Contains(rest.String(), "[DONE]") || strings.Contains(rest.String(), `"finish_reason":"`) {
			t.Errorf("a broken stream looks complete: %s", rest.String())
		}
		if resp, data := c.do("GET", "/health", ""); resp.StatusCode != 503 {
			t.Errorf("health after a failed step: %d %s", resp.StatusCode, data)
		}
		c.model.failNext(errors.New("again"))
		resp, data := c.do("POST", "/v1/chat/completions", chatBody("a", `,"stream":true`))
		if resp.StatusCode != 500 || decode(t, data).Error.Code != "runtime_failed" {
			t.Errorf("a failure before the first token: %d %s", resp.StatusCode, data)
		}
		c.post("/v1/chat/completions", chatBody("a", ""))
		if resp, data := c.do("GET", "/health", ""); resp.StatusCode != 200 {
			t.Errorf("health after a good step: %d %s", resp.StatusCode, data)
		}
	})
}

func TestDrainOnShutdown(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration
		want    string
	}{
		{"in time", time.Hour, "[DONE]"},
		{"too late", 2 * time.Second, "shutting_down"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, serve.Config{DrainTimeout: test.timeout}, time.Second)
				s := c.stream(chatBody("a b c d e f", `,"stream":true`))
				defer s.cancel()
				c.stop()
				var rest strings.Builder
				if _, err := s.WriteTo(&rest); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(rest.String(), test.want) {
					t.Errorf("the stream ends with %s, want %s", rest.String(), test.want)
				}
				<-c.done
			})
		})
	}
}

func TestSlowReaderIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{WriteTimeout: 10 * time.Second}, time.Millisecond)
		s := c.stream(chatBody(strings.Repeat("x", 100), `,"stream":true`))
		defer s.cancel()
		time.Sleep(30 * time.Second) // the pipe holds nothing: the server's write waits
		if stats := c.engine.Stats(); stats.Open != 0 {
			t.Errorf("after the write timeout: %+v", stats)
		}
		c.post("/v1/chat/completions", chatBody("others go on", ""))
	})
}
