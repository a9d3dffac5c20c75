package knative

import (
	"net/http"
	"strings"
	"testing"
)

// TestAdaptersByAnnotation changes a function's adapters by an annotation of its Service alone: the pod that runs
// serves the new list, with room for one at a time, and no revision is made.
func TestAdaptersByAnnotation(t *testing.T) {
	parallel(t)
	c := rouse(t)
	const weights = "adapted-weights"
	_, _ = c.Kubectl(t.Context(), "delete", "configmap", weights, "--ignore-not-found") // of a run that was killed
	if out, err := c.Kubectl(t.Context(), "create", "configmap", weights, `--from-literal=adapter_config.json={"r":8}`); err != nil {
		t.Fatalf("make a volume of adapters: %v: %s", err, out)
	}
	t.Cleanup(func() { _, _ = c.Kubectl(t.Context(), "delete", "configmap", weights) })
	f := create(t, "adapted", simulator, []string{"rouse.dev/model=sim/llama-8b", "rouse.dev/runtime=vllm", "rouse.dev/memory=64Mi",
		"rouse.dev/sleep-after=0", "rouse.dev/adapter-root=/loras"},
		"--annotation-service", "rouse.dev/adapters=adapted-sql=sql", "--mount", "/loras/sql=cm:"+weights, "--mount", "/loras/cs=cm:"+weights,
		"--env", "VLLMSIM_FLAGS=--time-scale 0", "--arg=--", "--arg=--max-loras", "--arg=1", "--arg=--max-cpu-loras", "--arg=1")

	// answered waits until the front door answers for a model with that status.
	answered := func(model string, want int) answer {
		t.Helper()
		var got answer
		eventually(t, "the model "+model, func() string {
			var err error
			if got, err = frontDoor(t, c, "/v1/chat/completions", chat(model, "hello there")); err != nil || got.status != want {
				return got.body
			}
			return ""
		})
		return got
	}
	answered("adapted-sql", http.StatusOK)
	answered("adapted-cs", http.StatusNotFound)
	before := f.pods()
	if len(before) != 1 {
		t.Fatalf("%d pods, want one", len(before))
	}

	declare := func(list string) {
		t.Helper()
		if out, err := c.Kubectl(t.Context(), "annotate", "ksvc", f.name, "rouse.dev/adapters="+list, "--overwrite"); err != nil {
			t.Fatalf("annotate the service: %v: %s", err, out)
		}
	}
	declare("adapted-sql=sql,adapted-cs=cs")
	answered("adapted-cs", http.StatusOK)
	said := map[string]string{}
	for _, model := range []string{"adapted-sql", "adapted-cs", "adapted", "adapted-sql", "adapted-cs"} { // one is loaded in place of the other
		a, err := frontDoor(t, c, "/v1/chat/completions", chat(model, "hello there"))
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d, %v: %s", model, a.status, err, a.body)
		}
		if said[model] != "" && said[model] != content(a.body) {
			t.Errorf("%s says %q, and %q before", model, content(a.body), said[model])
		}
		said[model] = content(a.body)
	}
	if said["adapted-sql"] == said["adapted-cs"] || said["adapted-sql"] == said["adapted"] {
		t.Errorf("the adapters and the model say the same: %v", said)
	}
	models, err := call(t.Context(), c, f.host(), "/v1/models", nil)
	if err != nil || !strings.Contains(models.body, `"adapted-sql"`) || !strings.Contains(models.body, `"adapted-cs"`) {
		t.Errorf("the list of models (%v) lacks one: %s", err, models.body)
	}

	declare("adapted-cs=cs")
	answered("adapted-sql", http.StatusNotFound)
	answered("adapted-cs", http.StatusOK)
	if after := f.pods(); len(after) != 1 || after[0].Metadata.Name != before[0].Metadata.Name {
		t.Errorf("the pods are %v, want %s alone", after, before[0].Metadata.Name)
	}
	if out, err := c.Kubectl(t.Context(), "get", "revisions", "-l", "serving.knative.dev/service="+f.name, "-o", "name"); err != nil || strings.Count(out, "revision") != 1 {
		t.Errorf("revisions (%v): want one: %s", err, out)
	}
}
