package activator

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
)

// atOnceTransport answers each request itself, so that only the activator's own work is measured.
type atOnceTransport struct{}

func (atOnceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	const body = `{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// BenchmarkGateway measures the cost of keys, limits, order and the access log: the same request with and without
// them, in turn. The difference of the medians is their cost.
func BenchmarkGateway(b *testing.B) {
	store := keys.NewStore(nil)
	store.Load(&apikey.File{Keys: []apikey.Key{{
		Name: "a", Tenant: "acme", Hash: apikey.Hash("k-a"),
		Rights: apikey.Rights{Models: []string{"x*", "m"}, RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 40, Concurrent: 10},
	}}})
	handler := func(change func(*Deps)) http.Handler {
		bench := startBench(b, nil, func(d *Deps) { d.Transport = atOnceTransport{} }, change)
		name := bench.function("m", nil)
		bench.a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: name, State: api.Awake, Endpoint: "http://127.0.0.1:1", Concurrency: 4, Seq: 1, Since: time.Now()})
		return bench.a.Handler()
	}
	handlers := [2]http.Handler{handler(func(*Deps) {}), handler(func(d *Deps) {
		d.Keys, d.Access = store, slog.New(slog.NewJSONHandler(io.Discard, nil))
	})}
	var took [2][]time.Duration
	for b.Loop() {
		for k, h := range handlers {
			r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(warmBody))
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer k-a")
			w := httptest.NewRecorder()
			began := time.Now()
			h.ServeHTTP(w, r)
			took[k] = append(took[k], time.Since(began))
			if w.Code != http.StatusOK {
				b.Fatalf("got %d %s", w.Code, w.Body)
			}
		}
	}
	var median [2]time.Duration
	for k := range took {
		slices.Sort(took[k])
		median[k] = took[k][len(took[k])/2]
	}
	b.ReportMetric(float64(median[0])/1e3, "µs-without")
	b.ReportMetric(float64(median[1])/1e3, "µs-with")
	b.ReportMetric(float64(median[1]-median[0])/1e3, "µs-more")
}
