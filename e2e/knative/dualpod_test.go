package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/cluster"
)

// dualPods makes functions that claim a GPU, of so many, by one pod and use it by another.
func dualPods(t *testing.T, gpus int, names ...string) []*function {
	t.Helper()
	return dualPodsOf(t, gpus, simulator, names...)
}

// dualPodsOf makes them of an image.
func dualPodsOf(t *testing.T, gpus int, image string, names ...string) []*function {
	t.Helper()
	c := rouse(t)
	if err := c.SetGPUs(t.Context(), cluster.GPUs{Count: gpus, Replicas: 1, MemoryMB: 8192}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprint(gpus, " GPUs"), func() string {
		out, err := c.Kubectl(t.Context(), "get", "nodes", "-o", `jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}`)
		if err != nil || strings.TrimSpace(out) != fmt.Sprint(gpus) {
			return fmt.Sprintf("the node offers %q (%v)", out, err)
		}
		return ""
	})
	inventoried(t, c, gpus, "8 GiB")
	overlays.Lock()
	err := apply(t.Context(), c, "dual-pods")
	overlays.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	var all []*function
	for _, name := range names {
		all = append(all, create(t, name, image,
			[]string{"rouse.dev/runtime=vllm", "rouse.dev/model=sim/tiny-1b", "rouse.dev/dual-pods=true", "rouse.dev/device-memory=5Gi",
				"rouse.dev/sleep-after=2s", "rouse.dev/gone-after=0", "rouse.dev/memory=64Mi"},
			"--limit", "nvidia.com/gpu=1", "--env", "VLLMSIM_FLAGS=--time-scale 0 --residue 256MiB --gpu-memory-utilization 0.6"))
	}
	return all
}

// complete asks for a completion and says how long it took.
func (f *function) complete() (time.Duration, error) {
	began := time.Now()
	a, err := call(f.t.Context(), f.c, f.host(), "/v1/completions", map[string]any{"model": f.name, "prompt": "hello", "max_tokens": 8, "temperature": 0})
	if err == nil && (a.status != http.StatusOK || strings.Contains(a.body, "####")) {
		err = fmt.Errorf("%s answers %d: %s", f.name, a.status, a.body)
	}
	return time.Since(began), err
}

func (f *function) mustComplete(when string) time.Duration {
	f.t.Helper()
	took, err := f.complete()
	if err != nil {
		f.t.Fatalf("%s: %v", when, err)
	}
	f.t.Logf("%s: %v", when, took.Round(time.Millisecond))
	return took
}

// providers are the names of the pods that run the function's model.
func (f *function) providers() []string {
	f.t.Helper()
	out, err := f.c.Kubectl(f.t.Context(), "get", "revisions", "-l", "serving.knative.dev/service="+f.name, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		f.t.Fatalf("list revisions: %v", err)
	}
	var names []string
	for rev := range strings.FieldsSeq(out) {
		for _, p := range pods(f.t, f.c, "rouse.dev/provider="+rev, "default") {
			names = append(names, p.Metadata.Name)
		}
	}
	slices.Sort(names)
	return names
}

// rests waits until the function sleeps and claims nothing.
func (f *function) rests() {
	f.t.Helper()
	eventually(f.t, f.name+" claims nothing", func() string {
		if !hurry(f.t.Context(), f.c, "serving.knative.dev/service="+f.name) {
			return "there are pods that claim GPUs"
		}
		return ""
	})
	for _, s := range f.states() {
		if s != "asleep" {
			f.t.Errorf("%s has an instance that is %s though nothing claims GPUs for it", f.name, s)
		}
	}
}

// twoPodsOfAFunction follows them through all that may happen to them.
func twoPodsOfAFunction(t *testing.T) {
	f := dualPods(t, 1, "dual-a")[0]
	c := f.c
	t.Logf("cold: %v", f.mustComplete("the first request"))
	f.traced(f.wakeTrace("cold"), "cold", "API write", "pod created", "started", "bound", "server pod made", "server pod up", "ready", api.StepLoading)
	if out, err := c.Kn(t.Context(), "rouse", "trace", f.name); err != nil {
		t.Error(err)
	} else {
		t.Logf("\n%s", out)
	}
	var first []string
	eventually(t, "an awake function has a provider and a requester", func() string {
		f.mustComplete("a request of an awake function") // on a busy machine it may have been idle for long enough to sleep
		if first = f.providers(); len(first) != 1 || len(f.pods()) != 1 {
			return fmt.Sprintf("there are the providers %v and %d requesters", first, len(f.pods()))
		}
		return ""
	})
	if claims := gpuLimits(t, c, "pod/"+first[0]); claims != "" {
		t.Errorf("the provider claims GPUs: %s", claims)
	}
	f.rests()

	t.Run("hot wake", func(t *testing.T) { f.wakesHot(first) })
	t.Run("requester deleted under load", func(t *testing.T) {
		l := underLoad(t, 2, func(context.Context, int64) error { _, err := f.complete(); return err })
		l.goOn(t, 20)
		if out, err := c.Kubectl(t.Context(), "delete", "pod", f.pods()[0].Metadata.Name, "--wait=false"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		l.goOn(t, 40)
		for _, failure := range l.end() {
			t.Error(failure)
		}
		f.rests()
	})
	t.Run("provider killed", func(t *testing.T) {
		f.mustComplete("before")
		for _, p := range f.providers() {
			if out, err := c.Kubectl(t.Context(), "delete", "pod", p, "--grace-period=1", "--wait=false"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		f.mustComplete("after its provider was killed")
		f.rests()
	})
	t.Run("service deleted", func(t *testing.T) {
		f.mustComplete("before")
		if out, err := c.Kn(t.Context(), "service", "delete", f.name); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		eventually(t, "no pod is left", func() string {
			out, err := c.Kubectl(t.Context(), "get", "pods", "-o", "name")
			if err != nil || strings.Contains(out, f.name) {
				hurry(t.Context(), c, "serving.knative.dev/service="+f.name)
				return fmt.Sprintf("there are %s (%v)", out, err)
			}
			return ""
		})
	})
}

// wakesHot wakes the function twice: on its one GPU the claim meets the sleeper.
func (f *function) wakesHot(sleepers []string) {
	f.t.Helper()
	for range 2 {
		f.mustComplete("a wake with its claim")
		if now := f.providers(); !slices.Equal(now, sleepers) {
			f.t.Fatalf("the providers are %v, want %v", now, sleepers)
		}
		f.rests()
		eventually(f.t, "the wake was hot", func() string {
			out, err := f.c.Kn(f.t.Context(), "rouse", "trace", f.name)
			if err != nil {
				return err.Error()
			}
			return lacks(out, " hot in ")
		})
	}
}

// TestTheAutoscalerIsKilledWithDualPods kills it while a request waits for a claim: the one that follows finds the provider again.
func TestTheAutoscalerIsKilledWithDualPods(t *testing.T) {
	f := dualPods(t, 2, "dual-k")[0]
	f.mustComplete("the first request")
	f.rests()
	before := f.providers()
	done := make(chan error, 1)
	go func() { _, err := f.complete(); done <- err }()
	f.hasPods(1)
	if out, err := f.c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", "-l", "app=rouse-autoscaler", "--grace-period=1", "--wait=false"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if now := f.providers(); len(now) > len(before)+1 {
		t.Errorf("the providers are %v after a restart of the autoscaler, before there were %v", now, before)
	}
	f.rests()
}

// twoPodsOfAnyImage: the image of a model server, as it is published, in both pods. The autoscaler may bring nothing else into
// the second one than the injector's image.
func twoPodsOfAnyImage(t *testing.T) {
	f := dualPodsOf(t, 1, anyVLLM, "dual-any")[0]
	f.mustComplete("the first request")
	first := f.providers()
	if len(first) != 1 {
		t.Fatalf("the providers are %v", first)
	}
	f.rests()
	f.wakesHot(first)
	raw, err := f.c.Kubectl(t.Context(), "get", "pod", first[0], "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	for _, tt := range []struct{ from, to, why string }{
		{"dev.local/rouse-function:v1", "dev.local/rouse-activator:v1", ""}, // the injector puts its own in that place
		{`"/rouse-function"`, `"/rouse"`, "the injector's own image"},
		{`"rouse.dev/injected": "true"`, `"rouse.dev/other": "true"`, "containers are those of its revision"},
	} {
		var pod struct {
			Metadata map[string]any `json:"metadata"`
			Spec     map[string]any `json:"spec"`
		}
		text := strings.ReplaceAll(raw, tt.from, tt.to)
		if err := json.Unmarshal([]byte(text), &pod); err != nil || text == raw {
			t.Fatalf("%s is not in the pod (%v)", tt.from, err)
		}
		delete(pod.Spec, "nodeName")
		delete(pod.Spec, "priority")
		made := object(t, map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": pod.Spec, "metadata": map[string]any{"name": "rights-any", "namespace": pod.Metadata["namespace"],
			"labels": pod.Metadata["labels"], "annotations": pod.Metadata["annotations"], "ownerReferences": pod.Metadata["ownerReferences"]}})
		if tt.why != "" {
			refusedTo(t, f.c, tt.why, "create", "--dry-run=server", "-f", made)
			continue
		}
		if out, err := asAutoscaler(t, f.c, "create", "--dry-run=server", "-f", made, "-o", "jsonpath={.spec.initContainers[*].image}"); err != nil || !strings.Contains(out, tt.from) {
			t.Errorf("with another image: %v: %s", err, out)
		}
	}
}

// dualPodsSwap has three functions take turns on two GPUs that Kubernetes gives to
// one pod each: a swap costs no pod on its way.
func dualPodsSwap(t *testing.T) {
	all := dualPods(t, 2, "dual-x", "dual-y", "dual-z")
	for _, f := range all {
		f.mustComplete("cold")
	}
	var took []time.Duration
	for range 4 {
		for _, f := range all {
			took = append(took, f.mustComplete("a swap"))
			if n := len(f.providers()); n > 2 {
				t.Errorf("%s has %d providers, want one for each GPU at most", f.name, n)
			}
		}
	}
	slices.Sort(took)
	t.Logf("swaps: half within %v, all within %v", took[len(took)/2], took[len(took)-1])
	for _, f := range all {
		f.rests()
	}
}

// TestABadProviderPatchIsTold declares a patch that asks for what a function may not have.
func TestABadProviderPatchIsTold(t *testing.T) {
	parallel(t)
	c := rouse(t)
	_, _ = c.Kn(t.Context(), "service", "delete", "dual-bad")
	f := &function{t: t, c: c, name: "dual-bad"}
	t.Cleanup(f.remove)
	out, err := f.kn("create", "dev.local/rouse-vllmsim:v1", []string{"rouse.dev/runtime=vllm", "rouse.dev/model=sim/tiny-1b", "rouse.dev/dual-pods=true",
		`rouse.dev/provider-patch={"spec":{"hostNetwork":true}}`}, "--limit", "nvidia.com/gpu=1", "--wait-timeout", "20")
	if err == nil || !strings.Contains(out+err.Error(), "hostNetwork") {
		t.Errorf("kn says %v: %s; want that it fails and names spec.hostNetwork", err, out)
	}
}

// gpuLimits prints the GPUs that a pod claims.
func gpuLimits(t *testing.T, c *cluster.Cluster, name string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "get", name, "-o", "jsonpath={.spec.containers[*].resources}")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(out, "nvidia.com") {
		return out
	}
	return ""
}
