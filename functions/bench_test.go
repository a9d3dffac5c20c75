//go:build linux

package functions_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// BenchmarkRequest compares a request to the runtime with one through the function, each in a separate process: the difference is the
// cost of the hop.
func BenchmarkRequest(b *testing.B) {
	s := spawn(b, "function")
	st, err := s.api.State(b.Context(), s.at)
	if err != nil {
		b.Fatal(err)
	}
	runtime := listener(b, st.PID)
	for _, bench := range []struct {
		name, body string
		at         api.Endpoint
	}{
		{"runtime", whole, runtime}, {"function", whole, s.at},
		{"runtime stream", stream, runtime}, {"function stream", stream, s.at},
	} {
		b.Run(bench.name, func(b *testing.B) {
			times := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				resp, err := s.http.Post(bench.at.URL("/v1/completions"), "application/json", strings.NewReader(bench.body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp.Status, err)
				}
				_ = resp.Body.Close()
				times = append(times, time.Since(began))
			}
			median(b, times)
		})
	}
}

// BenchmarkParallel is the same with 32 requests at once.
func BenchmarkParallel(b *testing.B) {
	s := spawn(b, "function")
	st, err := s.api.State(b.Context(), s.at)
	if err != nil {
		b.Fatal(err)
	}
	transport := api.NewTransport(64)
	client := &http.Client{Transport: transport}
	for _, bench := range []struct {
		name string
		at   api.Endpoint
	}{{"runtime", listener(b, st.PID)}, {"function", s.at}} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Post(bench.at.URL("/v1/completions"), "application/json", strings.NewReader(whole))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		})
	}
}

// BenchmarkWake measures the cost of the control path on top of the runtime's own wake (its call and its first
// token). The runtime sleeps in place, or is stopped and started.
func BenchmarkWake(b *testing.B) {
	for _, sleeps := range []bool{true, false} {
		b.Run(fmt.Sprintf("in place %t", sleeps), func(b *testing.B) {
			i := newInstance(b)
			cfg := i.config("-sleeps")
			cfg.Function.Runtime.Sleeps = sleeps
			i.run(cfg)
			i.until(api.Awake)
			var total, added []time.Duration
			for epoch := uint64(1); b.Loop(); epoch++ {
				if _, err := i.api.Sleep(b.Context(), i.at, control.SleepRequest{Level: 1, Epoch: epoch}); err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				st, err := i.api.Wake(b.Context(), i.at, api.Grant{Epoch: epoch})
				if err != nil {
					b.Fatal(err)
				}
				total = append(total, time.Since(began))
				added = append(added, total[len(total)-1]-st.WakeTime)
			}
			median(b, total)
			slices.Sort(added)
			b.ReportMetric(float64(added[len(added)/2].Microseconds()), "added-p50-µs")
		})
	}
}

// listener finds the port in the runtime's command line.
func listener(b *testing.B, pid int) api.Endpoint {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		b.Fatal(err)
	}
	for arg := range strings.SplitSeq(string(raw), "\x00") {
		if port, found := strings.CutPrefix(arg, "-port="); found {
			return api.Endpoint("http://127.0.0.1:" + port)
		}
	}
	b.Fatalf("no port in %q", raw)
	return ""
}

func median(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}
