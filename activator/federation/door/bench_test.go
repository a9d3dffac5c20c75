package door_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// BenchmarkExchange compares a front door's requests to a cluster with the same requests at the cluster's own front
// door.
func BenchmarkExchange(b *testing.B) {
	server, pool := authority(b)
	f := newFront(b, server, declared("west", "w", "default/chat"))
	spec := chat
	spec.Concurrency = 64
	west := newCluster(b, "west", "w", pool, spec, f.at)
	west.status.Concurrency = 64
	f.known(b, chat.Name)
	west.set(api.Awake)
	far := httptest.NewServer(west.activator.Handler())
	defer far.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	body := append([]byte(`{"model":"chat","messages":[{"role":"user","content":"`), append(bytes.Repeat([]byte("x"), 1000), `"}]}`...)...)
	one := func(b *testing.B, url string) {
		resp, err := client.Post(url+chatPath, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
	for name, url := range map[string]string{"direct": far.URL, "exchange": f.server.URL} {
		b.Run("one/"+name, func(b *testing.B) {
			for b.Loop() {
				one(b, url)
			}
		})
		b.Run("32/"+name, func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					one(b, url)
				}
			})
		})
	}
}

// BenchmarkStateChange measures how long a state change of an instance in a cluster takes to reach the front door's
// activator.
func BenchmarkStateChange(b *testing.B) {
	server, pool := authority(b)
	f := newFront(b, server, declared("west", "w", "default/chat"))
	west := newCluster(b, "west", "w", pool, chat, f.at)
	f.known(b, chat.Name)
	var took []float64
	states := []api.State{api.Awake, api.Asleep}
	for n := 0; b.Loop(); n++ {
		want, begun := states[n%2], time.Now()
		west.set(want)
		for {
			if s, ok := f.activator.Stats(chat.Name); ok && len(s.Instances) == 1 && s.Instances[0].State == want {
				break
			}
			runtime.Gosched()
		}
		took = append(took, float64(time.Since(begun))/float64(time.Millisecond))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[len(took)*99/100], "p99-ms")
}
