package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/functions/proxy"
)

// Lengths of prompts are estimated by the last lengths that the runtime has counted.
func TestLoadLearnsHowLongPromptsAre(t *testing.T) {
	began, next := make(chan struct{}), make(chan struct{})
	rt := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/chat/completions" {
			began <- struct{}{}
			<-next
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":20,"completion_tokens":1}}`)
	}))
	defer rt.Close()
	p := proxy.New(proxy.Config{Gate: &gate{base: rt.URL}, Transport: http.DefaultTransport})
	front := httptest.NewServer(p)
	defer front.Close()
	send := func(path string) {
		resp, err := http.Post(front.URL+path, "application/json", strings.NewReader(strings.Repeat(" ", 200)))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	for _, want := range []proxy.Load{{Requests: 1, Queued: 1, Tokens: 50, QueuedTokens: 50}, {Requests: 1, Queued: 1, Tokens: 20, QueuedTokens: 20}} {
		done := make(chan struct{})
		go func() { defer close(done); send("/v1/chat/completions") }()
		<-began
		if diff := cmp.Diff(want, p.Load()); diff != "" {
			t.Errorf("load (-want +got):\n%s", diff)
		}
		next <- struct{}{}
		<-done
		send("/v1/completions") // ends after the previous one
	}
}
