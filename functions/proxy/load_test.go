package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/jsonfield"
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

// A request that waits for its adapter's place is part of the load until it is let in, or its client has left.
func TestLoadOfRequestsThatWaitForAdapters(t *testing.T) {
	waits, left := make(chan struct{}), make(chan struct{})
	next, inside := make(chan struct{}), make(chan proxy.Load, 1)
	var p *proxy.Proxy
	runtime := func(w http.ResponseWriter, r *http.Request) { inside <- p.Load() }
	rt := httptest.NewServer(http.HandlerFunc(runtime))
	defer rt.Close()
	p = proxy.New(proxy.Config{
		Gate: &gate{base: rt.URL}, Transport: http.DefaultTransport, Adapter: func(*jsonfield.Object) api.ModelName { return "a" },
		Hold: func(ctx context.Context, name api.ModelName) (func(), error) {
			waits <- struct{}{}
			select {
			case <-next:
				return func() {}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { left <- struct{}{} }() // it may panic
		p.ServeHTTP(w, r)
	}))
	defer front.Close()
	send := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, front.URL+"/v1/completions", strings.NewReader(`{"model":"a"}`))
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	look := func(when string, got, want proxy.Load) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("load %s (-want +got):\n%s", when, diff)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go send(t.Context())
	<-waits
	go send(ctx)
	<-waits
	look("while two wait", p.Load(), proxy.Load{Held: []api.ModelName{"a", "a"}})
	cancel()
	<-left
	look("once a client has left", p.Load(), proxy.Load{Held: []api.ModelName{"a"}})
	next <- struct{}{}
	look("in the runtime", <-inside, proxy.Load{Requests: 1, Queued: 1, Tokens: 3, QueuedTokens: 3, Adapters: []api.ModelName{"a"}})
	<-left
	look("at the end", p.Load(), proxy.Load{})
}
