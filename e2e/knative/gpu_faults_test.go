package knative

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// half are the flags of a model that takes 34 GiB awake, so that two are awake on one GPU.
const half = large + " --gpu-memory-utilization 0.425"

// reasons returns the explanations that users get for a function's state, and its events.
func (f *function) reasons() string {
	f.t.Helper()
	why, err := f.c.Kn(f.t.Context(), "rouse", "why", f.name, "-n", f.namespace())
	if err != nil {
		f.t.Logf("kn rouse why %s: %v", f.name, err)
	}
	described, err := f.c.Kn(f.t.Context(), "rouse", "describe", f.name, "-n", f.namespace())
	if err != nil {
		f.t.Logf("kn rouse describe %s: %v", f.name, err)
	}
	var events corev1.EventList
	if err := get(f.t.Context(), f.c, "/api/v1/namespaces/"+f.namespace()+"/events", &events); err != nil {
		f.t.Log(err)
	}
	said := why + described
	for _, e := range events.Items {
		said += e.InvolvedObject.Name + " " + e.Reason + " " + e.Message + "\n"
	}
	return said
}

// aFunctionThatLiesAboutItsMemory declares half of the memory that its model takes. It can't be woken beside a function
// with a true declaration. Its requests are refused, its operator reads why, it is not tried again and again, and the
// other function is not disturbed.
func aFunctionThatLiesAboutItsMemory(t *testing.T) {
	c, in := gpus(t, 1)
	o := newOracle(t)
	liar := createIn(t, in, "liar", simulator, []string{"rouse.dev/runtime=vllm", "rouse.dev/model=" + simModel, "rouse.dev/device-memory=30Gi",
		"rouse.dev/memory=64Mi", "rouse.dev/sleep-after=1s", "rouse.dev/hold-timeout=20s"}, "--limit", "nvidia.com/gpu=1", "--env", "VLLMSIM_FLAGS="+large)
	o.right(liar, 1)
	liar.hasState("asleep")
	honest := createIn(t, in, "honest", simulator, []string{"rouse.dev/runtime=vllm", "rouse.dev/model=" + simModel, "rouse.dev/device-memory=35Gi",
		"rouse.dev/memory=64Mi", "rouse.dev/sleep-after=0"}, "--limit", "nvidia.com/gpu=1", "--env", "VLLMSIM_FLAGS="+half)
	o.right(honest, 1)
	pod := honest.onlyPod()
	l := underLoad(t, 2, func(ctx context.Context, i int64) error { return o.asks(ctx, honest, i) })
	a, err := call(t.Context(), c, liar.host(), "/v1/completions", prompted(liar.name, 2))
	if err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "start_failed") || strings.Contains(a.body, "emory") {
		t.Errorf("who asks for what can't be woken hears %d %s (%v), Retry-After %q; want 503, start_failed, nothing of what the runtime said, and when to come again", a.status, a.body, err, a.header.Get("Retry-After"))
	}
	if said := liar.reasons(); !strings.Contains(said, "memory") {
		t.Errorf("the reasons do not speak of memory:\n%s", said)
	}
	l.goOn(t, 50)
	for _, failure := range l.end() {
		t.Error(failure)
	}
	honest.same(pod)
	honest.hasState("awake")
}

// aSleeperThatKeepsMuch of its GPU is measured: the pod that does not fit beside it is made when it has given that
// memory back too, and its model server starts once.
func aSleeperThatKeepsMuch(t *testing.T) {
	_, in := gpus(t, 1)
	o := newOracle(t)
	f := simulated(t, in, "keeps-much", large+" --residue 40GiB", "rouse.dev/sleep-after=1s")
	o.right(f, 1)
	f.hasState("asleep")
	other := simulated(t, in, "needs-much", large)
	o.right(other, 2)
	if n := other.restarts(); n != 0 {
		t.Errorf("%d restarts, want none:\n%s", n, other.reasons())
	}
}

// aWakeThatHangs has the first wake of every model server never return. Waiting requests are answered all the same: the
// server is restarted when its time is up.
func aWakeThatHangs(t *testing.T) {
	_, in := gpus(t, 1)
	o := newOracle(t)
	f := simulated(t, in, "hangs", large+" --fault hang-wake", "rouse.dev/sleep-after=1s", "rouse.dev/wake-timeout=2s")
	o.right(f, 1)
	f.hasState("asleep")
	began := time.Now()
	o.right(f, 2)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it was answered after %v, want the wake's time to be up first", took)
	}
	if n := f.restarts(); n < 1 {
		t.Errorf("%d restarts, want the model server started anew", n)
	}
}

// TestGarbageAfterAWakeIsNotServed has every wake of the model server succeed with invalid weights. No client gets its
// output: it is loaded again first.
func TestGarbageAfterAWakeIsNotServed(t *testing.T) {
	parallel(t) // it needs no GPU
	c := rouse(t)
	o := newOracle(t)
	f := createIn(t, inNamespace(t, c), "garbled", simulator, []string{"rouse.dev/runtime=vllm", "rouse.dev/model=" + simModel, "rouse.dev/memory=64Mi", "rouse.dev/sleep-after=1s"},
		"--env", "VLLMSIM_FLAGS="+large+" --fault garbage-wake")
	o.right(f, 1)
	for i := range int64(2) {
		f.hasState("asleep")
		o.right(f, 2+i)
		if _, n := f.faults(); n < 1+int(i) {
			t.Errorf("%d times the canary was answered otherwise after %d wakes with garbage", n, i+1)
		}
	}
}

// aDeviceIsLost removes the GPU of an awake function whose pod has it alone. Its model server ends, and can't be
// started there. The function gets another pod with another GPU, and its answers are right again. A function on another
// GPU is not disturbed.
func aDeviceIsLost(t *testing.T) {
	c, in := gpus(t, 1)
	showGPUs(t, c, cluster.GPUs{Count: 3, Replicas: 1})
	o := newOracle(t)
	lost := simulated(t, in, "lost", large, "rouse.dev/sleep-after=0")
	other := simulated(t, in, "other", large, "rouse.dev/sleep-after=0")
	o.right(lost, 1)
	o.right(other, 1)
	before, pod := lost.onlyPod(), other.onlyPod()
	l := underLoad(t, 1, func(ctx context.Context, i int64) error { return o.asks(ctx, other, i) })
	showGPUs(t, c, cluster.GPUs{Count: 3, Replicas: 1, Lost: []int{lost.gpu()}})
	eventually(t, lost.name+" answers again", func() string {
		if err := o.asks(t.Context(), lost, 2); err != nil {
			return err.Error() + lastLines(lost.reasons(), 12)
		}
		return ""
	})
	if now := lost.onlyPod(); now == before {
		t.Errorf("%s answers from %s, whose GPU is lost", lost.name, now)
	}
	l.goOn(t, 10)
	for _, failure := range l.end() {
		t.Error(failure)
	}
	other.same(pod)
}

// gpu is the number of the GPU that the function's one pod was given.
func (f *function) gpu() int {
	f.t.Helper()
	out, err := f.c.Kubectl(f.t.Context(), "exec", "-n", f.in, f.onlyPod(), "-c", "user-container", "--", "nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
	if err != nil {
		f.t.Fatal(err)
	}
	i, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		f.t.Fatalf("the pod of %s has the GPUs %q, want one", f.name, out)
	}
	return i
}

// lastLines are at most the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
