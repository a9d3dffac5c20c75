package door_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// post sends a body unchanged and returns the answer.
func (f *front) post(ctx context.Context, t *testing.T, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

const streamed = `{"model":"chat","stream":true,"messages":[]}`

// TestExchangeOfOneRequest: a client and a runtime see each other across a front door as they would directly.
func TestExchangeOfOneRequest(t *testing.T) {
	newPair := func(t *testing.T, answer http.HandlerFunc) *front {
		t.Parallel()
		server, pool := authority(t)
		f := newFront(t, server, declared("west", "w", "default/chat"))
		west := newCluster(t, "west", "w", pool, chat, f.at)
		west.answer = answer
		f.known(t, chat.Name)
		west.set(api.Awake)
		return f
	}
	begin := func(w http.ResponseWriter, event string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", event)
		w.(http.Flusher).Flush()
	}
	t.Run("a client that leaves stops the runtime", func(t *testing.T) {
		left := make(chan struct{})
		f := newPair(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begin(w, `{"choices":[]}`)
			<-r.Context().Done()
			close(left)
		})
		ctx, leave := context.WithCancel(t.Context())
		_, _ = f.post(ctx, t, chatPath, streamed).Body.Read(make([]byte, 1))
		leave()
		<-left
	})
	t.Run("a stream that is cut does not end cleanly", func(t *testing.T) {
		f := newPair(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begin(w, `{"choices":[]}`)
			panic(http.ErrAbortHandler)
		})
		got, err := io.ReadAll(f.post(t.Context(), t, chatPath, streamed).Body)
		if err == nil && (!strings.Contains(string(got), `"error"`) || strings.Contains(string(got), "[DONE]")) {
			t.Errorf("it looks whole: %q", got)
		}
	})
	t.Run("a long event is passed on", func(t *testing.T) {
		event := `{"choices":[],"x":"` + strings.Repeat("x", 300<<10) + `"}`
		f := newPair(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begin(w, event)
			fmt.Fprint(w, "data: [DONE]\n\n")
		})
		got, err := io.ReadAll(f.post(t.Context(), t, chatPath, streamed).Body)
		if want := "data: " + event + "\n\ndata: [DONE]\n\n"; string(got) != want || err != nil {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	})
	t.Run("fields that nobody knows, and other APIs, are passed on", func(t *testing.T) {
		f := newPair(t, func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			begin(w, string(raw))
			fmt.Fprint(w, "data: [DONE]\n\n")
		})
		body := `{"model":"chat","stream":true,"stop":"x","seed":0,"logprobs":false,"guided_json":{"a":[1]},"unknown":1e2,"input":"x","messages":[]}`
		for _, path := range []string{chatPath, "/v1/responses"} {
			got, err := io.ReadAll(f.post(t.Context(), t, path, body).Body)
			if !strings.HasPrefix(string(got), "data: "+body+"\n\n") || err != nil {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		}
	})
}

// TestStuckAgent: an agent that neither reads nor answers blocks no one else.
func TestStuckAgent(t *testing.T) {
	t.Parallel()
	f, pool, undisturbed := badFront(t)
	who := hello("east", "a")
	r, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", who)
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{}, 100)
	r.serves(t, f, pool, who, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	if err := r.stream.Send(&protocol.Up{Functions: []protocol.Function{{Name: "east/x", Model: "x", State: api.Awake, Places: 10}}}); err != nil {
		t.Fatal(err)
	}
	f.known(t, "east/x")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	for range 20 { // ten are stuck there, ten wait
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.server.URL+chatPath, strings.NewReader(`{"model":"x","messages":[]}`))
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	<-arrived
	undisturbed()
	cancel()
}
