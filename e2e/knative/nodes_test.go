package knative

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// TestManyNodes gives the cluster ROUSE_E2E_NODES nodes of eight GPUs that are not there (make
// deep PART=faults: a thousand), and takes them away again. The autoscaler's inventory has them
// all, its memory stays far below its limit, and it wakes and starts functions as quickly as before.
func TestManyNodes(t *testing.T) {
	const each = 8
	nodes, err := strconv.Atoi(os.Getenv("ROUSE_E2E_NODES"))
	if err != nil {
		t.Skip("make deep PART=faults runs it")
	}
	c, in := gpus(t, 1)
	o := newOracle(t)
	sleeper := createIn(t, in, "sleeper", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=1s", "rouse.dev/gone-after=0"})
	sleeper.ask("red blue")
	sleeper.hasState("asleep")
	t.Cleanup(func() {
		if err := c.SetKWOK(context.Background(), cluster.KWOK{}); err != nil {
			t.Error(err)
		}
	})
	if err := c.SetKWOK(t.Context(), cluster.KWOK{Nodes: nodes, GPUs: each, MemoryMB: 80 << 10}); err != nil {
		t.Fatal(err)
	}
	hasFakes := func(want int) {
		t.Helper()
		eventually(t, "GPUs of other nodes in the inventory", func() string {
			out, err := c.Kn(t.Context(), "rouse", "top", "--once", "-A")
			if got := len(fakes.FindAllString(out, -1)); err != nil || got != want {
				return fmt.Sprintf("%d (%v), want %d", got, err, want)
			}
			return ""
		})
	}
	hasFakes(nodes * each)
	if resident := leaderMetric(t, c, "process_resident_memory_bytes"); resident > 512<<20 {
		t.Errorf("the autoscaler takes %.0f MiB, want at most half of its limit of 1 GiB", resident/(1<<20))
	}
	for range 3 {
		sleeper.hasState("asleep")
		began := time.Now()
		sleeper.ask("apple pear")
		if took := time.Since(began); took > soon {
			t.Errorf("a function that sleeps answers after %v", took)
		}
	}
	o.right(simulated(t, in, "started", large), 1) // its pod can land on one node only
	if err := c.SetKWOK(t.Context(), cluster.KWOK{}); err != nil {
		t.Fatal(err)
	}
	hasFakes(0)
}

// fakes are the lines of GPUs of nodes that are not there.
var fakes = regexp.MustCompile(`(?m)^kwok-\d+/gpu-`)

// leaderMetric reads a metric of the autoscaler that decides.
func leaderMetric(t *testing.T, c *cluster.Cluster, name string) float64 {
	t.Helper()
	leader := pods(t, c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving")
	if len(leader) != 1 {
		t.Fatalf("%d autoscalers lead, want 1", len(leader))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+leader[0].Status.PodIP+":9091/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("the autoscaler has no metric %s", name)
	return 0
}
