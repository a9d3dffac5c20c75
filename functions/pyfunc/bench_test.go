package pyfunc_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// prose is ordinary text with a few characters that must be escaped.
const prose = "The model says \"wake me\" when a request comes in; until then it sleeps.\n"

// chatBody returns a chat of about n bytes.
func chatBody(n int) []byte {
	escaped := strings.NewReplacer(`"`, `\"`, "\n", `\n`).Replace(prose)
	return []byte(`{"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": "` + strings.Repeat(escaped, n/len(escaped)) + `"}]}`)
}

const chatAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant",` +
	`"content":"It wakes, answers and sleeps again."},"finish_reason":"stop"}],"usage":{"prompt_tokens":900,"completion_tokens":9,"total_tokens":909}}`

// door returns a client for a function's door on a Unix socket: the client paths, and the scoring
// server in front of them.
func door(tb testing.TB) *http.Client {
	next := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatAnswer)
	}
	h := newHandler(tb, next)
	l, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	if err != nil {
		tb.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pyfunc.Serves(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		next(w, r)
	})}
	go s.Serve(l)
	tb.Cleanup(func() { s.Close() })
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
	}}}
}

func send(tb testing.TB, c *http.Client, path string, body []byte) time.Duration {
	began := time.Now()
	resp, err := c.Post("http://function"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatal(resp.Status, err)
	}
	resp.Body.Close()
	return time.Since(began)
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e3
}

// BenchmarkAdded sends a chat of 4 KiB plainly, in an envelope and as unified
// input, in turn. The differences of the medians are the overhead of /invocations.
func BenchmarkAdded(b *testing.B) {
	c := door(b)
	body := chatBody(4 << 10)
	wrapped := []byte(call(pyfunc.Request{Method: "POST", Path: "/chat/completions", Header: []pyfunc.Field{{Name: "content-type", Value: "application/json"}}, Body: body, Compat: true}))
	var plain, enveloped, unified []time.Duration
	for b.Loop() {
		plain = append(plain, send(b, c, "/v1/chat/completions", body))
		enveloped = append(enveloped, send(b, c, "/invocations", wrapped))
		unified = append(unified, send(b, c, "/invocations", body))
	}
	p := median(plain)
	b.ReportMetric(p, "plain-p50-µs")
	b.ReportMetric(median(enveloped)-p, "envelope-added-p50-µs")
	b.ReportMetric(median(unified)-p, "unified-added-p50-µs")
}

// BenchmarkPlain and BenchmarkEnvelope measure the two separately.
func BenchmarkPlain(b *testing.B) { one(b, "/v1/chat/completions", chatBody(4<<10)) }

func BenchmarkEnvelope(b *testing.B) {
	body := call(pyfunc.Request{Method: "POST", Path: "/chat/completions", Header: []pyfunc.Field{{Name: "content-type", Value: "application/json"}}, Body: chatBody(4 << 10), Compat: true})
	one(b, "/invocations", []byte(body))
}

func one(b *testing.B, path string, body []byte) {
	c := door(b)
	var all []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		all = append(all, send(b, c, path, body))
	}
	b.ReportMetric(median(all), "p50-µs")
}

// BenchmarkHandler measures the handler's own work, without HTTP.
func BenchmarkHandler(b *testing.B) {
	h := newHandler(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatAnswer)
	})
	for name, body := range map[string][]byte{
		"envelope": []byte(call(pyfunc.Request{Method: "POST", Path: "/chat/completions", Header: []pyfunc.Field{{Name: "content-type", Value: "application/json"}}, Body: chatBody(4 << 10), Compat: true})),
		"unified":  chatBody(4 << 10),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			r, _ := http.NewRequest(http.MethodPost, "/invocations", nil)
			r.Header.Set("Content-Type", "application/json")
			w := &discard{http.Header{}}
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				h.ServeHTTP(w, r)
			}
		})
	}
}

type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
