package activator

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestStress lets two instances fall asleep, wake, refuse and be reported late, while many clients come and some
// leave. Each client that stays must get its own answer, and a runtime must have been given each request once.
func TestStress(t *testing.T) {
	const clients, requests = 32, 40
	b := startBench(t, func(c *Config) { c.CommentAfter, c.CommentEvery = time.Millisecond, time.Millisecond })
	name := b.function("m", nil)
	var mu sync.Mutex // guards given
	given := make(map[string]int)
	instances := make([]*fakeInstance, 2)
	for n := range instances {
		i := b.instance(name, fmt.Sprintf("m-%04d", n), api.Asleep)
		i.wakeTakes = time.Millisecond
		i.chat = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			given[string(body)]++
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			answerOnce(w, r)
		}
		instances[n] = i
		b.grant(i, 1)
	}
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	for n, i := range instances {
		chaos.Go(func() { disturb(b, i, rand.New(rand.NewPCG(1, uint64(n))), stop) })
	}
	var all sync.WaitGroup
	var answered, left atomic.Int32
	for n := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(n)))
			for k := range requests {
				if stressOne(b, r, fmt.Sprintf(`{"model":"m","n":"%d-%d"`, n, k)) {
					answered.Add(1)
				} else {
					left.Add(1)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	chaos.Wait()
	b.eventually("all slots are free and nobody waits", func() bool {
		s, _ := b.a.Stats(name)
		return s.Running == 0 && s.Waiting == 0 && s.HeldBytes == 0 && b.a.door.Memory().Used() == 0 && b.a.inFlight.n.Load() == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for body, times := range given {
		if times != 1 {
			t.Errorf("%s was given to runtimes %d times", body, times)
		}
	}
	refused := instances[0].refused.Load() + instances[1].refused.Load()
	wakes := instances[0].wakes.Load() + instances[1].wakes.Load()
	t.Logf("%d answered, %d left, %d refusals, %d wakes", answered.Load(), left.Load(), refused, wakes)
	if answered.Load()+left.Load() != clients*requests || answered.Load() == 0 || left.Load() == 0 || refused == 0 || wakes < 2 {
		t.Error("the test did not disturb what it means to")
	}
}

// disturb puts i to sleep repeatedly; its report comes late, or only after the next wake.
func disturb(b *bench, i *fakeInstance, r *rand.Rand, stop chan struct{}) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			b.a.ObserveInstance(i.set(api.Awake))
			return
		case <-tick.C:
		}
		if i.state() != api.Awake {
			continue
		}
		report := i.set(api.Asleep)
		if r.IntN(3) > 0 {
			b.a.ObserveInstance(report)
		}
	}
}

// stressOne sends one request and checks its answer; false if its client left before.
func stressOne(b *bench, r *rand.Rand, start string) (answered bool) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	streams := r.IntN(2) == 0
	body := fmt.Sprintf(`%s,"stream":%t}`, start, streams)
	if r.IntN(8) == 0 {
		defer time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, cancel).Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.ts.URL+chatPath, strings.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			b.t.Errorf("%s: %v", body, err)
		}
		return false
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if ctx.Err() != nil {
		return false
	}
	want := fmt.Sprintf("%q", body)
	if streams {
		want = "data: [DONE]\n\n"
	}
	if err != nil || resp.StatusCode != http.StatusOK || strings.Count(string(raw), want) != 1 {
		b.t.Errorf("%s: got %s %q, %v", body, resp.Status, raw, err)
	}
	return true
}
