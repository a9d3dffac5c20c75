package activator

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestWarm(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	const body = `{"model":"m","unknown":{"kept":[1,2]},"messages":[]}`
	resp, got := b.post(chatPath, body, "X-Request-Id", "mine")
	if resp.StatusCode != http.StatusOK || !strings.Contains(got, fmt.Sprintf("%q", body)) {
		t.Fatalf("got %s %s, want 200 with the body as sent", resp.Status, got)
	}
	if id := resp.Header.Values("X-Request-Id"); len(id) != 1 || id[0] != "mine" {
		t.Errorf("x-request-id: got %q, want the client's once", id)
	}
	if timing := resp.Header.Get("Server-Timing"); !strings.HasPrefix(timing, "hold;dur=0, wake;dur=0, queue;dur=0, ttft;dur=") {
		t.Errorf("server-timing: got %q", timing)
	}
	if n := i.served.Load(); n != 1 {
		t.Errorf("served: got %d, want 1", n)
	}
}

func TestManyAtZeroWakeOnce(t *testing.T) {
	const clients = 200
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 50 * time.Millisecond
	b.grant(i, 1)
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"m","n":%d}`, n)
			resp, got := b.post(chatPath, body)
			if resp.StatusCode != http.StatusOK || !strings.Contains(got, fmt.Sprintf("%q", body)) {
				t.Errorf("client %d: got %s %s", n, resp.Status, got)
			}
		})
	}
	all.Wait()
	if wakes, served, most := i.wakes.Load(), i.served.Load(), i.most.Load(); wakes != 1 || served != clients || most > 4 {
		t.Errorf("got %d wakes, %d served, at most %d at once; want 1, %d, 4", wakes, served, most, clients)
	}
	b.eventually("a last level of zero", func() bool {
		d := b.demands()
		return len(d) > 1 && d[len(d)-1].Waiting == 0 && d[len(d)-1].Running == 0
	})
	if first := b.demands()[0]; first.Waiting != 1 || first.Waking != "m-0001" || first.LastRequest.IsZero() {
		t.Errorf("first demand: got %+v, want one waiting and m-0001 waking", first)
	}
}
