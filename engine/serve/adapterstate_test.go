package serve_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

// TestStreamsOfAdaptersGoOn checks that a stream of an adapter continues only where the adapter of that name has the
// same contents.
func TestStreamsOfAdaptersGoOn(t *testing.T) {
	one := run(t, serve.Config{Model: "pico", Adapters: map[string]string{"mine": "pico/shout"}})
	same := run(t, serve.Config{Model: "pico", Adapters: map[string]string{"mine": "pico/shout"}})
	other := run(t, serve.Config{Model: "pico", Adapters: map[string]string{"mine": "pico/pirate"}})
	const body = `{"model":"mine","messages":[{"role":"user","content":"echo boat cat dog sun"}],"stream":true,"temperature":0}`
	ask := func(c *http.Client, state string) (status int, data, pieces []string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Rouse-Stream-State", state)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if piece, is := strings.CutPrefix(line, ": rouse-state "); is {
				pieces = append(pieces, strings.TrimSpace(piece))
			} else if strings.TrimSpace(line) != "" {
				data = append(data, strings.TrimSpace(line))
			}
		}
		return resp.StatusCode, data, pieces
	}
	_, want, pieces := ask(one.http, "new")
	if len(pieces) < 3 || !strings.Contains(strings.Join(want, ""), "BO") {
		t.Fatalf("the whole stream: %q, state %q", want, pieces)
	}
	state := strings.Join(pieces[:2], ";")
	if status, got, _ := ask(same.http, state); status != http.StatusOK || !slices.Equal(got, want[2:]) {
		t.Errorf("the same contents: %d %q, want %q", status, got, want[2:])
	}
	if status, got, _ := ask(other.http, state); status != http.StatusBadRequest || !strings.Contains(strings.Join(got, ""), "stream_cut") {
		t.Errorf("other contents: %d %q, want it refused", status, got)
	}
}
