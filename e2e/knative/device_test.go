package knative

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// twoModelsShareOneDevice gives two functions the same GPU by time slicing.
// Their memory fits only one at a time: they take turns, both are served, and
// neither pod is started again.
func twoModelsShareOneDevice(t *testing.T) {
	c := rouse(t)
	if err := c.SetGPUs(t.Context(), cluster.GPUs{Count: 1, Replicas: 4, MemoryMB: 80 << 10}); err != nil {
		t.Fatal(err)
	}
	var both []*function
	for _, name := range []string{"gpu-a", "gpu-b"} {
		both = append(both, create(t, name, "dev.local/rouse-vllmsim:v1",
			[]string{"rouse.dev/runtime=vllm", "rouse.dev/model=sim/llama-8b", "rouse.dev/served-model-name=" + name, "rouse.dev/device-memory=70Gi", "rouse.dev/sleep-after=0", "rouse.dev/memory=64Mi"},
			"--limit", "nvidia.com/gpu=1", "--env", "VLLMSIM_FLAGS=--time-scale 0.05"))
	}
	pods := map[string]string{}
	for turn := range 6 {
		f, other := both[turn%2], both[1-turn%2]
		a, err := call(t.Context(), c, f.host(), "/v1/completions", map[string]any{"model": f.name, "prompt": "hello", "max_tokens": 8, "temperature": 0})
		if err != nil || a.status != http.StatusOK || strings.Contains(a.body, "####") {
			t.Fatalf("turn %d: %s answers %d %s (%v)", turn, f.name, a.status, a.body, err)
		}
		f.hasState("awake")
		if states := other.states(); turn > 0 && fmt.Sprint(states) != "[asleep]" {
			t.Fatalf("turn %d: %s is awake and %s is %v, want it asleep", turn, f.name, other.name, states)
		}
		now := f.pods()
		if len(now) != 1 {
			t.Fatalf("turn %d: %s has %d pods, want 1", turn, f.name, len(now))
		}
		if before := pods[f.name]; before != "" && before != now[0].Metadata.Name {
			t.Errorf("turn %d: %s runs in %s, want %s as before", turn, f.name, now[0].Metadata.Name, before)
		}
		pods[f.name] = now[0].Metadata.Name
	}
}

// TestRealOllama runs a model in a real Ollama: from zero, asleep, and awake again.
func TestRealOllama(t *testing.T) {
	parallel(t)
	c := rouse(t)
	if !haveOllama {
		t.Skip("no image of Ollama was built: run `make ollama`")
	}
	f := create(t, "llama", "dev.local/rouse-ollama:v1",
		[]string{"rouse.dev/runtime=ollama", "rouse.dev/model=/models/tiny.gguf", "rouse.dev/sleep-after=3s", "rouse.dev/gone-after=0", "rouse.dev/memory=256Mi"})
	for _, state := range []string{"gone", "asleep"} {
		a, err := call(t.Context(), c, f.host(), "/v1/chat/completions", map[string]any{"model": f.name, "max_tokens": 5, "messages": []map[string]string{{"role": "user", "content": "hi"}}})
		if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"content"`) {
			t.Fatalf("from %s: %d %s (%v)", state, a.status, a.body, err)
		}
		tags, err := frontDoor(t, c, "/api/chat", map[string]any{"model": f.name, "stream": false, "options": map[string]any{"num_predict": 3}, "messages": []map[string]string{{"role": "user", "content": "hi"}}})
		if err != nil || tags.status != http.StatusOK || !strings.Contains(tags.body, `"done":true`) {
			t.Errorf("Ollama's own API from %s: %d %s (%v)", state, tags.status, tags.body, err)
		}
		f.hasState("asleep")
	}
}
