package knative

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
	"github.com/rouse-dev/rouse/e2e/vllmsim"
	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// The fake GPUs of these tests, and the model that takes most of one while it is awake.
const (
	gib       = int64(1) << 30
	gpuMemory = 80 * gib
	simulator = "dev.local/rouse-vllmsim:v1"
	simModel  = "sim/llama-8b"
)

// large are the simulator's flags for a model that takes 68 GiB awake and 1 GiB asleep,
// with times as short as a test wants them.
const large = "--load-time 100ms --wake-time 20ms --sleep-time 20ms --reload-time 50ms --prefill-time 1us --step-time 200us " +
	"--gpu-memory-utilization 0.85 --residue 1GiB"

// declares holds the annotations of a function with such a model.
var declares = []string{"rouse.dev/runtime=vllm", "rouse.dev/model=" + simModel, "rouse.dev/device-memory=69Gi", "rouse.dev/memory=64Mi"}

// gpus gives the node n GPUs that pods may share, and the test a namespace of its own. Such tests do not run at the
// same time as one another ([TestGPUs]).
func gpus(t *testing.T, n int) (c *cluster.Cluster, in string) {
	t.Helper()
	c = rouse(t)
	showGPUs(t, c, cluster.GPUs{Count: n})
	hasUsed(t, c, make([]int64, n)...)
	return c, inNamespace(t, c)
}

// showGPUs changes the node's GPUs and waits until the node offers those that are not lost, and the autoscaler has them
// all in its inventory.
func showGPUs(t *testing.T, c *cluster.Cluster, g cluster.GPUs) {
	t.Helper()
	g.Replicas, g.MemoryMB = cmp.Or(g.Replicas, 8), int(gpuMemory>>20)
	if err := c.SetGPUs(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint((g.Count - len(g.Lost)) * g.Replicas)
	eventually(t, "the node's GPUs", func() string {
		got, err := c.Kubectl(t.Context(), "get", "node", cluster.NodeName, "-o", `jsonpath={.status.allocatable.nvidia\.com/gpu}`)
		if err != nil || got != want {
			return fmt.Sprintf("%s are allocatable (%v), want %s", got, err, want)
		}
		return ""
	})
	if len(g.Lost) > 0 {
		return
	}
	inventoried(t, c, g.Count, fmt.Sprintf("%d GiB", gpuMemory/gib))
}

// inventoried waits until the autoscaler knows of so many fake GPUs, each with so much memory.
func inventoried(t *testing.T, c *cluster.Cluster, n int, memory string) {
	t.Helper()
	eventually(t, "the autoscaler's inventory", func() string {
		top, err := c.Kn(t.Context(), "rouse", "top", "--once", "-A")
		all := fakeGPUs.FindAllStringSubmatch(top, -1)
		if err != nil || len(all) != n || slices.ContainsFunc(all, func(m []string) bool { return m[1] != memory }) {
			return fmt.Sprintf("want %d GPUs of %s (%v):\n%s", n, memory, err, top)
		}
		return ""
	})
}

// fakeGPUs are the lines of the node's GPUs in the inventory, with their memory.
var fakeGPUs = regexp.MustCompile(`(?m)^\S+ +Fake-GPU\S* of \S+ +(\S+ \S+) `)

// inNamespace makes a namespace that goes with the test.
func inNamespace(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	in := fmt.Sprintf("gpus-%x", time.Now().UnixNano())
	if _, err := c.Kubectl(t.Context(), "create", "namespace", in); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", in, "--wait=false"); err != nil {
			t.Error(err)
		}
		endAll(t, c, in)
	})
	return in
}

// endAll kills the pods in a namespace that is being deleted: Knative lets them run for a while, and the next test
// needs their GPUs.
func endAll(t *testing.T, c *cluster.Cluster, in string) {
	ctx := context.Background()
	if _, err := c.Kubectl(ctx, "delete", "pods", "--all", "-n", in, "--wait=false"); err != nil {
		t.Error(err)
	}
	ids, err := c.Kubectl(ctx, "get", "pods", "-n", in, "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	if err != nil {
		t.Error(err)
	}
	for id := range strings.FieldsSeq(ids) {
		_ = c.Exec(ctx, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", strings.TrimPrefix(id, "containerd://")).Run() // it may have ended by itself
	}
}

// simulated makes a function on one GPU whose model server is the simulator.
func simulated(t *testing.T, in, name, flags string, annotations ...string) *function {
	t.Helper()
	return createIn(t, in, name, simulator, append(annotations, declares...), "--limit", "nvidia.com/gpu=1", "--env", "VLLMSIM_FLAGS="+flags)
}

// oracle knows what every simulator of the model answers: it is one.
type oracle struct{ http.Handler }

func newOracle(t *testing.T) oracle {
	t.Helper()
	s, err := vllmsim.New(vllmsim.Config{Model: simModel})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // so that it can end unread
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-s.Ready()
	return oracle{s}
}

// prompted is a body for /v1/completions.
func prompted(model string, i int64) map[string]any {
	return map[string]any{"model": model, "prompt": fmt.Sprintf("tell me of %d", i), "max_tokens": 12, "temperature": 0}
}

// says is the text that answers number i.
func (o oracle) says(i int64) (string, error) {
	raw, err := json.Marshal(prompted(simModel, i))
	if err != nil {
		return "", err
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(string(raw))))
	return text(answer{status: w.Code, body: w.Body.String()})
}

// text reads the text of a completion.
func text(a answer) (string, error) {
	var got struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK || len(got.Choices) != 1 {
		return "", fmt.Errorf("status %d: %s", a.status, a.body)
	}
	return got.Choices[0].Text, nil
}

// asks asks a function for text number i and compares it with what the oracle says.
func (o oracle) asks(ctx context.Context, f *function, i int64) error {
	want, err := o.says(i)
	if err != nil {
		return fmt.Errorf("the oracle: %w", err)
	}
	a, err := call(ctx, f.c, f.host(), "/v1/completions", prompted(f.name, i))
	if err != nil {
		return err
	}
	got, err := text(a)
	if err == nil && got != want {
		err = fmt.Errorf("%s says %q, want %q", f.name, got, want)
	}
	return err
}

// right asks a function and fails the test unless the answer is right.
func (o oracle) right(f *function, i int64) {
	f.t.Helper()
	if err := o.asks(f.t.Context(), f, i); err != nil {
		f.t.Fatalf("ask %s: %v", f.name, err)
	}
}

// hasUsed waits until the simulators use exactly that much of the node's GPUs. A device that was removed may still have
// its file, without holders.
func hasUsed(t *testing.T, c *cluster.Cluster, want ...int64) {
	t.Helper()
	eventually(t, "memory in use on the GPUs", func() string {
		all, err := c.Devices()
		if err != nil {
			return err.Error()
		}
		var got []int64
		for i, d := range all {
			if i < len(want) || d.Used() != 0 {
				got = append(got, d.Used())
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("%v bytes are used, want %v: %v", got, want, holders(all))
		}
		return ""
	})
}

// holders lists the holders of devices.
func holders(all []device.Device) (lines []string) {
	for _, d := range all {
		for _, p := range d.Processes {
			lines = append(lines, fmt.Sprintf("GPU %d: %s has %d MiB", d.Index, p.Client, p.Bytes>>20))
		}
	}
	return lines
}

// restarts counts how often the function's model servers ended and were started again.
func (f *function) restarts() int {
	f.t.Helper()
	n, _ := f.faults()
	return n
}

// faults counts restarts, and how often the canary was answered otherwise than before a sleep.
func (f *function) faults() (restarts, mismatches int) {
	f.t.Helper()
	out, err := f.c.Kn(f.t.Context(), "rouse", "describe", f.name, "-n", f.namespace(), "-o", "json")
	if err != nil {
		f.t.Fatal(err)
	}
	var view struct {
		Revisions []struct {
			Function struct {
				Instances []struct{ Restarts, CanaryMismatches int }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil {
		f.t.Fatalf("kn rouse describe %s: %v", f.name, err)
	}
	for _, r := range view.Revisions {
		for _, i := range r.Function.Instances {
			restarts, mismatches = restarts+i.Restarts, mismatches+i.CanaryMismatches
		}
	}
	return restarts, mismatches
}

// same fails the test unless a function still has the one pod that it had.
func (f *function) same(before string) {
	f.t.Helper()
	if now := f.pods(); len(now) != 1 || now[0].Metadata.Name != before {
		f.t.Errorf("%s has the pods %v, want %s as before", f.name, now, before)
	}
}

// onlyPod is the name of the one pod.
func (f *function) onlyPod() string {
	f.t.Helper()
	all := f.pods()
	if len(all) != 1 {
		f.t.Fatalf("%s has %d pods, want 1", f.name, len(all))
	}
	return all[0].Metadata.Name
}

// soon bounds what a test lets go on under load.
const soon = 30 * time.Second
