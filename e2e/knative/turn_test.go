package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/e2e/cluster"
)

// fit is the number of pods that fit on the node in TestManyFunctionsInTurn, and functions the number of functions
// there. ROUSE_E2E_FUNCTIONS sets another number, and ROUSE_E2E_REPORT the file for the measurements (make bench-turn).
const (
	fit       = 10
	functions = 14
)

// TestManyFunctionsInTurn asks for more functions than the node has room for awake, one after the other, and the first
// of them again. None is refused and no pod is deleted: a sleeper's pod gives up its requests, and gets them back
// before it wakes.
func TestManyFunctionsInTurn(t *testing.T) {
	c := rouse(t)
	n := functions
	if v, err := strconv.Atoi(os.Getenv("ROUSE_E2E_FUNCTIONS")); err == nil {
		n = v
	}
	const label = "rouse.e2e=in-turn"
	remove := func(ctx context.Context) {
		_, _ = c.Kubectl(ctx, "delete", "ksvc", "-l", label, "--ignore-not-found")
		for begin := time.Now(); !hurry(ctx, c, label) && time.Since(begin) < within; { // the next tests want the room
			<-time.After(200 * time.Millisecond)
		}
	}
	remove(t.Context())
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		remove(context.Background())
	})
	if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "wait", "deployment/rouse-activator", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=180s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	queue, request := int64(25), int64(0)             // the first is the request of Knative's queue-proxy, in thousandths
	eventually(t, "room on the node", func() string { // pods that were here before take their time to end
		if request = freeCPU(t, c)/fit - queue; request < 10 {
			return fmt.Sprintf("%d pods would get %dm each", fit, request)
		}
		return ""
	})
	file := inTurn(t, n, request)
	if out, err := c.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := c.Kubectl(t.Context(), "wait", "ksvc", "-l", label, "--for=condition=Ready", "--timeout=600s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := report.New("make bench-turn")
	began, first, again := time.Now(), []float64{}, []float64{}
	for k := range n + 2 {
		f := &function{t: t, c: c, name: fmt.Sprintf("in-turn-%d", k%n)}
		asked := time.Now()
		if a := answerOf(t, c, f.name); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", f.name, a.status, a.body)
		}
		if took := report.Millis(time.Since(asked)); k < n {
			first = append(first, took)
		} else {
			again = append(again, took)
		}
		if cpu := requested(t, c, f.name); cpu != request+queue {
			t.Errorf("%s is awake and its pod requests %dm CPU, want %dm", f.name, cpu, request+queue)
		}
	}
	t.Logf("%d functions, %dm CPU each, of %dm: %s, the slowest answer after %.0f ms", n, request+queue, fit*(request+queue), time.Since(began).Round(time.Second), max(slices.Max(first), slices.Max(again)))
	have := len(pods(t, c, "rouse.e2e=in-turn", "default"))
	if have != n {
		t.Errorf("%d of %d pods are there, want all: who sleeps is in nobody's way", have, n)
	}
	if err := turnsReport(r, !t.Failed(), have, first, again).Finish(os.Getenv("ROUSE_E2E_REPORT")); err != nil {
		t.Error(err)
	}
	// A function of Knative's own class finds the room that it would have had without Rouse.
	stock := &function{t: t, c: c, name: "not-in-turn"}
	t.Cleanup(stock.remove)
	if out, err := c.Kn(t.Context(), "service", "create", stock.name, "--no-wait", "--image", helloImage, "--label", label, "--request", fmt.Sprintf("cpu=%dm", 2*request)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "the stock function is ready", func() string {
		if have := stock.condition("Ready"); have.Status != "True" {
			return string(have.Status) + " " + have.Reason + ": " + have.Message
		}
		return ""
	})
}

// inTurn writes the manifest of n functions whose containers request so much CPU, in thousandths, to a file.
func inTurn(t *testing.T, n int, request int64) string {
	t.Helper()
	var manifest strings.Builder
	for k := range n {
		fmt.Fprintf(&manifest, `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: in-turn-%d, labels: {rouse.e2e: in-turn}}
spec:
  template:
    metadata:
      labels: {rouse.e2e: in-turn}
      annotations: {autoscaling.knative.dev/class: %s, autoscaling.knative.dev/initial-scale: "0", rouse.dev/model: pico, rouse.dev/sleep-after: 15s}
    spec:
      containers: [{image: %q, resources: {requests: {cpu: %dm}}}]
`, k, class, functionImage, request)
	}
	file := t.TempDir() + "/functions.yaml"
	if err := os.WriteFile(file, []byte(manifest.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// turnsReport adds how long answers took, in milliseconds, of functions that were asked for the first time and again.
func turnsReport(r *report.Report, held bool, pods int, first, again []float64) *report.Report {
	for _, m := range []report.Measurement{
		{Name: "functions in turn, cold", What: fmt.Sprintf("one request to each of %d functions, one after the other, to its answer, on a node with room for %d of their pods awake; each is cold, and those before are awake or asleep", len(first), fit), N: len(first), Rouse: report.Summarise(first)},
		{Name: "functions in turn, again", What: "one request more to the first of them, which sleep without what their pods requested, to its answer", N: len(again), Rouse: report.Summarise(again)},
	} {
		m.Unit, m.Note = "ms", fmt.Sprintf("%d pods are there at the end", pods)
		r.Measurements = append(r.Measurements, m.Gated(held, "none is refused, none goes, and each has what it requests while it is awake"))
	}
	return r
}

// requested returns the CPU that the pod of a function requests, in thousandths.
func requested(t *testing.T, c *cluster.Cluster, name string) (sum int64) {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "get", "pods", "-l", "serving.knative.dev/service="+name, "-o", "jsonpath={.items[*].spec.containers[*].resources.requests.cpu}")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, q := range strings.Fields(out) {
		sum += milliCPU(t, q)
	}
	return sum
}

// milliCPU reads an amount of CPU, in thousandths.
func milliCPU(t *testing.T, s string) int64 {
	t.Helper()
	q, err := resource.ParseQuantity(s)
	if err != nil {
		t.Fatalf("%q is no quantity: %v", s, err)
	}
	return q.MilliValue()
}

// freeCPU returns the CPU that pods may still request of the node, in thousandths of a CPU.
func freeCPU(t *testing.T, c *cluster.Cluster) int64 {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
	if err != nil {
		t.Fatal(err)
	}
	free := milliCPU(t, out)
	if out, err = c.Kubectl(t.Context(), "get", "pods", "-A", "-o", "json"); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Spec struct {
				NodeName   string
				Containers []struct {
					Resources struct{ Requests struct{ CPU string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		for _, container := range p.Spec.Containers {
			if cpu := container.Resources.Requests.CPU; cpu != "" && p.Spec.NodeName != "" {
				free -= milliCPU(t, cpu)
			}
		}
	}
	return free
}
