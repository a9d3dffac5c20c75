package kn_test

import (
	"bytes"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/kn"
	"github.com/rouse-dev/rouse/engine/pico"
)

// gpuCluster is a cluster with Rouse, the component any-image, and two nodes with GPUs.
func gpuCluster(t *testing.T) *fakeCluster {
	c, _ := populated(t)
	c.put(`apiVersion: apps/v1
kind: Deployment
metadata: {name: rouse-activator, namespace: knative-serving}
spec: {template: {spec: {containers: [{name: activator, image: "registry.example/ai/rouse-activator:v7"}]}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: rouse-injector}`)
	before := c.admin
	c.admin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != admin.PathDevices {
			before.ServeHTTP(w, r)
			return
		}
		api.WriteJSON(w, http.StatusOK, []admin.Device{
			{ID: "a/host", Node: "a", Name: "memory of a", Total: 900 * api.GiB},
			{ID: "a/gpu-0", Node: "a", Name: "L4 of a", Total: 24 * api.GiB}, {ID: "a/gpu-1", Node: "a", Name: "L4 of a", Total: 24 * api.GiB},
			{ID: "b/gpu-0", Node: "b", Name: "H100 of b", Total: 80 * api.GiB},
		})
	})
	return c
}

// conditionOf has Knative say of each Service that is made what it would.
func (c *fakeCluster) conditionOf(status, message string) {
	c.created = func(o map[string]any) {
		o["status"] = map[string]any{"url": "http://" + nested(o, "metadata", "name") + ".example.com",
			"conditions": []any{map[string]any{"type": "Ready", "status": status, "message": message}}}
	}
}

func TestCreate(t *testing.T) {
	c := gpuCluster(t)
	c.conditionOf("True", "")
	out, err := c.run("create", "chat", "--model", "Qwen/Qwen3-0.6B", "-n", "models", "--gpu-memory", "20Gi", "--memory", "16Gi", "--sleep-after", "5m", "--scale-max", "2",
		"--env", "HF_HOME=/tmp/it's here", "--arg=--max-model-len", "--arg", "8192")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `kn service create chat \
  --namespace models \
  --image vllm/vllm-openai:v0.30.0 \
  --scale-init 0 \
  --scale-max 2 \
  --annotation-revision autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev \
  --annotation-revision rouse.dev/runtime=vllm \
  --annotation-revision rouse.dev/model=Qwen/Qwen3-0.6B \
  --annotation-revision serving.knative.dev/progress-deadline=30m \
  --annotation-revision rouse.dev/start-timeout=30m \
  --annotation-revision rouse.dev/hold-timeout=30m \
  --annotation-revision rouse.dev/device-memory=20Gi \
  --annotation-revision rouse.dev/sleep-after=5m \
  --request memory=16Gi \
  --limit nvidia.com/gpu=1 \
  --volume shm=emptyDir:shm:size=8Gi,type=Memory \
  --mount /dev/shm=shm \
  --env 'HF_HOME=/tmp/it'\''s here' \
  --arg=--max-model-len \
  --arg=8192
Service models/chat is made; waiting until it is ready
Service models/chat is ready: http://chat.example.com
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	made := c.object("/apis/serving.knative.dev/v1/namespaces/models/services/chat")
	template, _ := made["spec"].(map[string]any)["template"].(map[string]any)
	wantTemplate := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			"autoscaling.knative.dev/class": "gpu.autoscaling.rouse.dev", "autoscaling.knative.dev/initial-scale": "0", "autoscaling.knative.dev/max-scale": "2",
			"rouse.dev/runtime": "vllm", "rouse.dev/model": "Qwen/Qwen3-0.6B", "serving.knative.dev/progress-deadline": "30m",
			"rouse.dev/start-timeout": "30m", "rouse.dev/hold-timeout": "30m", "rouse.dev/device-memory": "20Gi", "rouse.dev/sleep-after": "5m",
		}},
		"spec": map[string]any{
			"containers": []any{map[string]any{
				"image": "vllm/vllm-openai:v0.30.0", "args": []any{"--max-model-len", "8192"}, "env": []any{map[string]any{"name": "HF_HOME", "value": "/tmp/it's here"}},
				"resources":    map[string]any{"requests": map[string]any{"memory": "16Gi"}, "limits": map[string]any{"nvidia.com/gpu": "1"}},
				"volumeMounts": []any{map[string]any{"name": "shm", "mountPath": "/dev/shm"}},
			}},
			"volumes": []any{map[string]any{"name": "shm", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "8Gi"}}},
		},
	}
	if diff := cmp.Diff(wantTemplate, template); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
}

// TestCreateWithParts: Secrets, ConfigMaps and volumes, in kn's words, in the command and in the Service.
func TestCreateWithParts(t *testing.T) {
	c := gpuCluster(t)
	c.conditionOf("True", "")
	for _, kind := range []string{"Secret hub", "Secret all", "Secret pull", "ConfigMap settings", "PersistentVolumeClaim models", "ServiceAccount runner"} {
		kind, name, _ := strings.Cut(kind, " ")
		c.put("apiVersion: v1\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: default}")
	}
	out, err := c.run("create", "chat", "--model", "org/name", "--env", "A=1", "--env-value-from", "HF_TOKEN=secret:hub:token", "--env-value-from", "B=cm:settings:b", "--env-from", "secret:all", "--env-from", "config-map:settings",
		"--volume", "cache=emptyDir:cache:size=1Gi", "--mount", "/models=pvc:models/llama", "--mount", "/etc/x=sc:all", "--mount", "/tmp/cache=cache", "--service-account", "runner", "--pull-secret", "pull")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `  --limit nvidia.com/gpu=1 \
  --volume cache=emptyDir:cache:size=1Gi \
  --volume models=persistentVolumeClaim:models \
  --volume etc-x=secret:all \
  --volume shm=emptyDir:shm:size=8Gi,type=Memory \
  --mount /models=models/llama \
  --mount /etc/x=etc-x \
  --mount /tmp/cache=cache \
  --mount /dev/shm=shm \
  --env A=1 \
  --env-value-from HF_TOKEN=secret:hub:token \
  --env-value-from B=config-map:settings:b \
  --env-from secret:all \
  --env-from config-map:settings \
  --service-account runner \
  --pull-secret pull
`
	if !strings.Contains(out, want) {
		t.Errorf("printed\n%s\nwant in it\n%s", out, want)
	}
	made := c.object("/apis/serving.knative.dev/v1/namespaces/default/services/chat")
	spec, _ := made["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container, _ := spec["containers"].([]any)[0].(map[string]any)
	delete(container, "resources")
	wantSpec := map[string]any{
		"serviceAccountName": "runner", "imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"containers": []any{map[string]any{
			"image": "vllm/vllm-openai:v0.30.0",
			"env": []any{map[string]any{"name": "A", "value": "1"},
				map[string]any{"name": "HF_TOKEN", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "hub", "key": "token"}}},
				map[string]any{"name": "B", "valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": "settings", "key": "b"}}}},
			"envFrom": []any{map[string]any{"secretRef": map[string]any{"name": "all"}}, map[string]any{"configMapRef": map[string]any{"name": "settings"}}},
			"volumeMounts": []any{map[string]any{"name": "models", "mountPath": "/models", "subPath": "llama"}, map[string]any{"name": "etc-x", "mountPath": "/etc/x", "readOnly": true},
				map[string]any{"name": "cache", "mountPath": "/tmp/cache"}, map[string]any{"name": "shm", "mountPath": "/dev/shm"}},
		}},
		"volumes": []any{map[string]any{"name": "cache", "emptyDir": map[string]any{"sizeLimit": "1Gi"}}, map[string]any{"name": "models", "persistentVolumeClaim": map[string]any{"claimName": "models"}},
			map[string]any{"name": "etc-x", "secret": map[string]any{"secretName": "all"}}, map[string]any{"name": "shm", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "8Gi"}}},
	}
	if diff := cmp.Diff(wantSpec, spec); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	out, err = c.run("create", "m", "--print", "--model", "org/name", "--mount", "/dev/shm=emptyDir:mine", "--mount", "/a=ed:x", "--mount", "/A=ed:y")
	if err != nil || strings.Contains(out, "8Gi") || !strings.Contains(out, "--volume a=emptyDir:x") || !strings.Contains(out, "--volume a-2=emptyDir:y") {
		t.Errorf("a /dev/shm of one's own: %v\n%s", err, out)
	}
	c.deny = func(_, resource, _ string) bool { return resource == "secrets" }
	var printed, notes bytes.Buffer
	if err := kn.Execute(t.Context(), []string{"create", "m", "--print", "--model", "org/name", "--env-from", "secret:gone", "--kubeconfig", c.kubeconfig}, &printed, &notes); err != nil || !strings.Contains(notes.String(), "note: whether there is the secret default/gone was not seen") {
		t.Errorf("without the right to look: %v\n%s", err, &notes)
	}
}

// TestCreateByReference: what serves a model follows from what it is.
func TestCreateByReference(t *testing.T) {
	c := gpuCluster(t)
	const ours = "registry.example/ai/rouse-function:v7"
	for _, tt := range []struct{ args, image, has string }{
		{"--model " + pico.Name, ours, "rouse.dev/model=pico"},
		{"--model https://host/m.gguf#sha256=00", ours, "'rouse.dev/model=https://host/m.gguf#sha256=00'"},
		{"--model hf.co/org/name-GGUF:q8_0", ours, "rouse.dev/model=hf://org/name-GGUF?quant=q8_0"},
		{"--model hf://org/name/x.Q4.gguf", ours, "rouse.dev/start-timeout=15m"},
		{"--model hf.co/org/name-GGUF:q8_0 --runtime llamacpp", "ghcr.io/ggml-org/llama.cpp:", "rouse.dev/runtime=llamacpp"},
		{"--model ollama://llama3.2:1b", "ollama/ollama:", "rouse.dev/runtime=ollama"},
		{"--model llama3.2:1b --runtime ollama", "ollama/ollama:", "rouse.dev/model=llama3.2:1b"},
		{"--model org/name", "vllm/vllm-openai:", "--limit nvidia.com/gpu=1"},
		{"--model hf://org/name@main", "vllm/vllm-openai:", "rouse.dev/model=hf://org/name@main"},
		{"--model org/name --runtime sglang --gpus 2 --gpu-memory 24Gi", "lmsysorg/sglang:", "--limit nvidia.com/gpu=2"},
		{"--model org/name --gpus 0", "vllm/vllm-openai:", "rouse.dev/model=org/name"},
		{"--model /models/x.gguf --image me/mine:v1 --runtime engine", "me/mine:v1", "rouse.dev/model=/models/x.gguf"},
		{"--model app:app --runtime ray-serve --image me/ray:v1", "me/ray:v1", "rouse.dev/runtime=ray-serve"},
		{"--runtime http --image me/web:v1", "me/web:v1", "rouse.dev/runtime=http"},
		{"--model pico -a rouse.dev/start-timeout=1h --served-model-name small", ours, "rouse.dev/served-model-name=small"},
	} {
		out, err := c.run(append([]string{"create", "m", "--print"}, strings.Fields(tt.args)...)...)
		if err != nil || !strings.Contains(out, "--image "+tt.image) || !strings.Contains(strings.ReplaceAll(out, "'", ""), strings.ReplaceAll(tt.has, "'", "")) {
			t.Errorf("create %s: %v; want the image %s and %q in\n%s", tt.args, err, tt.image, tt.has, out)
		}
		if strings.Contains(tt.args, "--gpus 0") && (strings.Contains(out, "nvidia") || strings.Contains(out, "shm")) {
			t.Errorf("create %s asks for a GPU:\n%s", tt.args, out)
		}
	}
	if got := c.object("/apis/serving.knative.dev/v1/namespaces/default/services/m"); got != nil {
		t.Errorf("--print made %v", got)
	}
}

// TestCreatedCommand has a shell parse the command, and compares its words with the Service.
func TestCreatedCommand(t *testing.T) {
	c := gpuCluster(t)
	hostile := `a b"c'd$(id)` + "`id`" + `\;&|<>*?~#!`
	out, err := c.run("create", "m", "--model", "pico", "--print", "--env", "X="+hostile, "--arg", hostile)
	if err != nil {
		t.Fatal(err)
	}
	words, err := exec.Command("sh", "-c", "kn() { printf '%s\\0' \"$@\"; }\n"+out).Output()
	if err != nil {
		t.Fatalf("sh: %v of\n%s", err, out)
	}
	got := strings.Split(string(words), "\x00")
	for _, want := range []string{"X=" + hostile, "--arg=" + hostile, "rouse.dev/model=pico"} {
		if !slices.Contains(got, want) {
			t.Errorf("the shell has no word %q in %q", want, got)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*fakeCluster)
		args   string
		want   []string
	}{
		{"no model", nil, "m", []string{"--model REF"}},
		{"a bad name", nil, "Chat --model pico", []string{`name "Chat"`}},
		{"nearly pico", nil, "m --model pica", []string{"did you mean pico?"}},
		{"a bare name", nil, "m --model llama3.2", []string{"did you mean ollama://llama3.2"}},
		{"nearly a runtime", nil, "m --model org/name --runtime vlm", []string{"did you mean vllm?"}},
		{"a file of this machine", nil, "m --model ./x.gguf", []string{"in no pod"}},
		{"a file of no image", nil, "m --model /x.gguf", []string{"in no pod"}},
		{"no such scheme", nil, "m --model ftp://host/x", []string{"nobody fetches ftp://"}},
		{"a folder of something", nil, "m --model s3://bucket/folder", []string{"--runtime"}},
		{"nearly an annotation", nil, "m --model pico -a rouse.dev/slep-after=5m", []string{"did you mean rouse.dev/sleep-after"}},
		{"no value", nil, "m --model pico --sleep-after soon", []string{"rouse.dev/sleep-after"}},
		{"no environment", nil, "m --model pico --env X", []string{"NAME=VALUE"}},
		{"no such Secret", nil, "m --model pico --env-value-from HF_TOKEN=secret:gone:token", []string{"there is no secret default/gone", "--no-check"}},
		{"no such claim", nil, "m --model pico --mount /models=pvc:gone", []string{"there is no persistentVolumeClaim default/gone"}},
		{"no such account", nil, "m --model pico --service-account gone", []string{"there is no serviceAccount default/gone"}},
		{"no key", nil, "m --model pico --env-value-from HF_TOKEN=secret:hub", []string{"want a key of hub"}},
		{"no kind", nil, "m --model pico --env-value-from HF_TOKEN=vault:hub:token", []string{"vault:hub", "secret"}},
		{"a volume of no kind", nil, "m --model pico --volume v=hostPath:/", []string{"--volume v=", "persistentVolumeClaim"}},
		{"environment of a claim", nil, "m --model pico --env-from pvc:x", []string{"--env-from", "secret:NAME"}},
		{"a mount of no volume", nil, "m --model pico --mount /x=v", []string{`there is no volume "v"`, "--volume v="}},
		{"a path that is none", nil, "m --model pico --mount x=pvc:v", []string{"--mount", "PATH=VOLUME"}},
		{"the root", nil, "m --model pico --mount /=pvc:v", []string{"--mount"}},
		{"a path twice", nil, "m --model pico --mount /x=ed:v --mount /x=ed:w", []string{"given twice"}},
		{"a volume twice", nil, "m --model pico --volume v=ed:v --volume v=ed:w", []string{"given twice"}},
		{"a size that is none", nil, "m --model pico --volume v=ed:v:size=much", []string{`the size "much"`}},
		{"a size of a claim", nil, "m --model pico --volume v=pvc:v:size=1Gi", []string{"an emptyDir has"}},
		{"no name of an account", nil, "m --model pico --service-account A_b", []string{"--service-account"}},
		{"no image", nil, "m --model app:app --runtime ray-serve", []string{"say --image"}},
		{"no GPU of the size", nil, "m --model org/name --gpu-memory 100Gi", []string{"no GPU has 100 GiB", "b/gpu-0 (H100 of b) with 80 GiB", "--no-check"}},
		{"no node with so many", nil, "m --model org/name --gpus 2 --gpu-memory 40Gi", []string{"no node has 2 GPUs of 40 GiB", "b has the most, 1"}},
		{"no GPU at all", func(c *fakeCluster) { c.admin = http.HandlerFunc(serveAdmin) }, "m --model org/name", []string{"no GPU that Rouse knows of", "kn rouse check"}},
		{"no injector", func(c *fakeCluster) { c.take("mutatingwebhookconfigurations") }, "m --model ollama://x", []string{"the component any-image"}},
		{"not installed", func(c *fakeCluster) { c.take("rouse-a") }, "m --model pico", []string{"kubectl apply -k"}},
		{"not installed, another image", func(c *fakeCluster) { c.take("rouse-autoscaler"); c.take("rouse-control") }, "m --model pico --image x/y:v1", []string{"kubectl apply -k"}},
		{"the name is taken", nil, "tiny --model pico", []string{"there is a Service default/tiny already", "it was not changed", "kn service update tiny"}},
		{"the name is another's", nil, "hello --model pico", []string{"no function"}},
		{"no right", func(c *fakeCluster) {
			c.deny = func(verb, resource, _ string) bool { return verb == "create" && resource == "services" }
		}, "m --model pico", []string{"you may not create services", "kubectl auth can-i create services.serving.knative.dev/m"}},
		{"no right to see the image", func(c *fakeCluster) {
			c.deny = func(_, resource, _ string) bool { return resource == "deployments" }
		}, "m --model pico", []string{"or say --image"}},
		{"never ready", func(c *fakeCluster) { c.conditionOf("False", "no such image") }, "m --model pico", []string{"can't become ready: no such image"}},
		{"not ready for long", func(c *fakeCluster) { c.conditionOf("Unknown", "deploying") }, "m --model pico --timeout 1s", []string{"not done within --timeout 1s", "deploying"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gpuCluster(t)
			if tt.change != nil {
				tt.change(c)
			}
			before := c.object("/apis/serving.knative.dev/v1/namespaces/default/services/tiny")
			c.fails(tt.want, append([]string{"create"}, strings.Fields(tt.args)...)...)
			if diff := cmp.Diff(before, c.object("/apis/serving.knative.dev/v1/namespaces/default/services/tiny")); diff != "" {
				t.Errorf("the Service that was there was changed:\n%s", diff)
			}
		})
	}
}

// TestCreateSaysWhatItDoesNotSee: a person with few rights is told what was not checked, and gets the function.
func TestCreateSaysWhatItDoesNotSee(t *testing.T) {
	c := gpuCluster(t)
	c.conditionOf("True", "")
	c.deny = func(_, resource, _ string) bool {
		return resource == "secrets" || resource == "mutatingwebhookconfigurations"
	}
	var out, notes bytes.Buffer
	if err := kn.Execute(t.Context(), []string{"create", "m", "--model", "org/name", "--kubeconfig", c.kubeconfig}, &out, &notes); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"note: whether the component any-image is installed", "note: GPUs and names were not checked: you may not get secrets"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("no %q in the notes:\n%s", want, &notes)
		}
	}
	c.deny = nil
	notes.Reset()
	if err := kn.Execute(t.Context(), []string{"create", "other", "--model", "pico", "--served-model-name", "tiny", "--dry-run", "--kubeconfig", c.kubeconfig}, &out, &notes); err != nil {
		t.Fatal(err)
	}
	if want := "note: the model name tiny is that of default/tiny too"; !strings.Contains(notes.String(), want) {
		t.Errorf("no %q in the notes:\n%s", want, &notes)
	}
	if !strings.Contains(out.String(), "the cluster would take it; nothing was made") || c.object("/apis/serving.knative.dev/v1/namespaces/default/services/other") != nil {
		t.Errorf("--dry-run made it, or says nothing:\n%s", &out)
	}
}
