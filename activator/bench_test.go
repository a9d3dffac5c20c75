package activator

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// BenchmarkWarm measures the hop: a client and an instance on Unix sockets, with the activator between them (hop) and
// without it (direct). The difference is the activator's cost.
func BenchmarkWarm(b *testing.B) {
	bench := startBench(b, nil)
	name := bench.function("m", func(f *api.Function) { f.Concurrency = 1000 })
	i := startFake(b, name, "m-0001", 1000)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}`)
	}
	bench.a.ObserveInstance(i.set(api.Awake))
	front := serveSocket(b, bench.a.Handler())
	for _, at := range []struct {
		name     string
		endpoint api.Endpoint
	}{{"direct", i.endpoint}, {"hop", front}} {
		transport := api.NewTransport(256)
		b.Run(at.name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				warm(b, transport, at.endpoint)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
		})
		b.Run(at.name+"-32", func(b *testing.B) {
			b.SetParallelism(8) // of 4 cores
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					warm(b, transport, at.endpoint)
				}
			})
		})
		transport.CloseIdleConnections()
	}
}

// BenchmarkFromZero measures a request that finds its instance asleep, whose
// wake itself takes no time: hold, event, wake call, dispatch and answer.
func BenchmarkFromZero(b *testing.B) {
	bench := startBench(b, nil)
	name := bench.function("m", nil)
	i := bench.instance(name, "m-0001", api.Asleep)
	bench.grant(i, 1)
	front := serveSocket(b, bench.a.Handler())
	transport := api.NewTransport(256)
	defer transport.CloseIdleConnections()
	var took []time.Duration
	for b.Loop() {
		bench.a.ObserveInstance(i.set(api.Asleep))
		began := time.Now()
		warm(b, transport, front)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
	if n := int(i.wakes.Load()); n != len(took) {
		b.Errorf("got %d wakes for %d requests", n, len(took))
	}
}

func serveSocket(b *testing.B, h http.Handler) api.Endpoint {
	socket := filepath.Join(b.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	b.Cleanup(func() { _ = s.Close() })
	return api.Endpoint("unix:" + socket)
}

const warmBody = `{"model":"m","messages":[{"role":"user","content":"Say hello in one word, please."}],"max_tokens":16}`

func warm(b *testing.B, transport http.RoundTripper, e api.Endpoint) {
	req, _ := http.NewRequest(http.MethodPost, e.URL(chatPath), strings.NewReader(warmBody))
	req.Host = "localhost"
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		b.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.Errorf("got %s", resp.Status)
	}
}
