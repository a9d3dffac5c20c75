package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

const full = `apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: tiny
  namespace: team
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev
        autoscaling.knative.dev/min-scale: "1"
        autoscaling.knative.dev/max-scale: "3"
        autoscaling.knative.dev/window: 40s
        rouse.dev/model: models/tiny.gguf
        rouse.dev/served-model-name: tiny-chat
        rouse.dev/aliases: gpt-4o-mini, tiny-instruct
        rouse.dev/sleep-after: 30s
        rouse.dev/sleep-level: "2"
        rouse.dev/gone-after: "0"
        rouse.dev/hold-capacity: "50"
        rouse.dev/priority: "-2"
        rouse.dev/client-credentials: pass
        rouse.dev/prefix-cache: shared
    spec:
      containerConcurrency: 4
      timeoutSeconds: 600
      containers:
        - image: dev.local/rouse-function:v1
          args: [--threads, "2"]
          env:
            - {name: HF_TOKEN, value: secret}
          resources:
            requests: {memory: 512Mi}
            limits: {nvidia.com/gpu: 2}
---
`

func TestParseReadsEveryField(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "functions.yaml")
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []api.Function{{
		Name: "team/tiny", Model: "tiny-chat", Aliases: []api.ModelName{"gpt-4o-mini", "tiny-instruct"},
		Runtime:  api.Runtime{Kind: api.RuntimeEngine, Model: filepath.Join(dir, "models/tiny.gguf"), Args: []string{"--threads", "2"}, Env: []string{"HF_TOKEN=secret"}},
		MinScale: 1, MaxScale: 3, Concurrency: 4,
		Memory:     api.Memory{Host: 512 * api.MiB, Devices: 2},
		SleepAfter: 30 * time.Second, SleepLevel: api.Level2, FixedLevel: true,
		Hold:         api.Hold{Capacity: 50, MaxBytes: 256 * api.MiB, Timeout: 5 * time.Minute},
		StartTimeout: 10 * time.Minute, WakeTimeout: time.Minute, RequestTimeout: 10 * time.Minute,
		Priority: -2, PassCredentials: true, SharedPrefixes: true, Origin: path,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestErrorsSayWhatToChange checks that errors of bad manifests say how to mend them.
func TestErrorsSayWhatToChange(t *testing.T) {
	good := strings.TrimSuffix(full, "---\n")
	replace := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the manifest lacks %q", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	for name, tt := range map[string]struct {
		manifest string
		want     []string
	}{
		"empty":              {"", []string{"no Service of serving.knative.dev/v1"}},
		"not YAML":           {"a: [", []string{"m.yaml:1: not YAML"}},
		"a tab":              {"kind: Service\n\tmetadata: {}", []string{"m.yaml:2: not YAML: ", "tab"}},
		"a scalar":           {"hello", []string{"m.yaml", "is of the YAML type str: want an object"}},
		"another kind":       {replace("kind: Service", "kind: Deployment"), []string{`kind "Deployment"`, "want kind Service"}},
		"core Service":       {replace("serving.knative.dev/v1", "v1"), []string{`apiVersion "v1"`, "serving.knative.dev/v1"}},
		"bad name":           {replace("name: tiny\n", "name: Tiny_1\n"), []string{`"Tiny_1"`, "a-z"}},
		"half a key":         {replace("rouse.dev/sleep-after", "rouse.dev/endpoint"), []string{"m.yaml:17", "did you mean rouse.dev/runtime-endpoint"}},
		"misspelt key":       {replace("rouse.dev/sleep-after", "rouse.dev/sleep-afer"), []string{"m.yaml:17", "did you mean rouse.dev/sleep-after"}},
		"bad duration":       {replace("sleep-after: 30s", "sleep-after: '30'"), []string{"m.yaml:17", "rouse.dev/sleep-after", "30s"}},
		"bad level":          {replace(`sleep-level: "2"`, `sleep-level: "3"`), []string{"rouse.dev/sleep-level", "want 1 or 2"}},
		"bad choice":         {replace("client-credentials: pass", "client-credentials: yes"), []string{"rouse.dev/client-credentials", "want drop or pass"}},
		"bad count":          {replace(`hold-capacity: "50"`, `hold-capacity: many`), []string{"rouse.dev/hold-capacity", "whole number"}},
		"bad memory":         {replace("512Mi", "lots"), []string{`memory "lots"`, "512Mi or 2Gi"}},
		"bad GPU count":      {replace("nvidia.com/gpu: 2", "nvidia.com/gpu: all"), []string{"nvidia.com/gpu", "number of GPUs"}},
		"other class":        {replace("gpu.autoscaling.rouse.dev", "kpa.autoscaling.knative.dev"), []string{"kpa.autoscaling.knative.dev", config.Class}},
		"no model":           {replace("        rouse.dev/model: models/tiny.gguf\n", ""), []string{"names no model", config.AnnotationModel}},
		"unknown runtime":    {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime: cuda"), []string{`runtime "cuda"`, "engine, vllm, sglang"}},
		"command without":    {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime: command"), []string{"no command"}},
		"ollama, no model":   {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime: ollama"), []string{"names no model", config.AnnotationModel}},
		"bad endpoint":       {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime-endpoint: localhost"), []string{"rouse.dev/runtime-endpoint", "http://host:port"}},
		"engine elsewhere":   {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime-endpoint: http://127.0.0.1:1"), []string{"rouse.dev/runtime-endpoint", `runtime "engine"`, config.AnnotationRuntime}},
		"bad adapters":       {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/adapters: a"), []string{"rouse.dev/adapters", "name=path"}},
		"bad handler":        {replace("rouse.dev/model: models/tiny.gguf", "rouse.dev/handler: '[1]'"), []string{"rouse.dev/handler", "JSON list"}},
		"sidecar, unknown":   {replace("- image:", "- ports: [{containerPort: 8080}]\n          image:") + "        - image: other\n", []string{"sidecar", config.AnnotationEndpoint}},
		"min above max":      {replace(`min-scale: "1"`, `min-scale: "4"`), []string{"min-scale is 4", "max-scale is 3"}},
		"two containers":     {good + "        - image: other\n", []string{"2 entries"}},
		"value from cluster": {replace("value: secret", "valueFrom: {secretKeyRef: {name: a, key: b}}"), []string{"HF_TOKEN", "valueFrom"}},
		"the same twice":     {good + "---\n" + good, []string{"team/tiny", "twice"}},
		"alias of another":   {good + "---\n" + strings.NewReplacer("name: tiny\n", "name: other\n", "tiny-chat", "other-chat").Replace(good), []string{`"gpt-4o-mini"`, "team/tiny", "team/other"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse(strings.NewReader(tt.manifest), "m.yaml", ".")
			if err == nil {
				t.Fatalf("no error, functions %+v", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q lacks %q", err, want)
				}
			}
		})
	}
}

// TestWhatModelsAreCalled checks that paths are resolved against the manifest's folder, and that names and URLs stay
// as they are.
func TestWhatModelsAreCalled(t *testing.T) {
	for _, tt := range []struct{ kind, ref, want string }{
		{"engine", "pico", "pico"},
		{"engine", "models/a.gguf", "/m/models/a.gguf"},
		{"engine", "file:///x/a.gguf", "/x/a.gguf"},
		{"engine", "file://a.gguf#sha256=00", "file:///m/a.gguf#sha256=00"},
		{"engine", "https://h/a.gguf", "https://h/a.gguf"},
		{"llamacpp", "a.gguf", "/m/a.gguf"},
		{"vllm", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B"},
		{"vllm", "./Qwen", "/m/Qwen"},
		{"vllm", "/q", "/q"},
		{"sglang", "hf://org/name@main", "hf://org/name@main"},
		{"ollama", "qwen2.5:0.5b", "qwen2.5:0.5b"},
		{"ollama", "./a.gguf", "/m/a.gguf"},
		{"ollama", "a.Modelfile", "/m/a.Modelfile"},
		{"ollama", "models/a.gguf", "/m/models/a.gguf"},
	} {
		manifest := "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\nspec: {template: {metadata: {annotations: {rouse.dev/runtime: " + tt.kind + ", rouse.dev/model: '" + tt.ref + "'}}, spec: {containers: [{image: x}]}}}\n"
		got, err := config.Parse(strings.NewReader(manifest), "m.yaml", "/m")
		if err != nil {
			t.Errorf("%s %s: %v", tt.kind, tt.ref, err)
		} else if got[0].Runtime.Model != tt.want {
			t.Errorf("%s %s: model %s, want %s", tt.kind, tt.ref, got[0].Runtime.Model, tt.want)
		}
	}
}

// TestSidecar checks that the container with a port is the function if there are two.
func TestSidecar(t *testing.T) {
	got, err := config.Parse(strings.NewReader(`
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/runtime: vllm
        rouse.dev/runtime-endpoint: http://127.0.0.1:8000
        rouse.dev/adapters: sql=./loras/sql, law=/loras/law
        rouse.dev/adapter-root: /loras
        rouse.dev/handler: python3 guard.py --strict
    spec:
      containers:
        - image: vllm/vllm-openai
          args: [--model, Qwen/Qwen3-0.6B]
        - image: rouse/function
          ports: [{containerPort: 8080}]
          env: [{name: A, value: b}]
`), "m.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	want := api.Runtime{
		Kind: api.RuntimeVLLM, Endpoint: "http://127.0.0.1:8000", Env: []string{"A=b"}, AdapterRoot: "/loras",
		Adapters: []api.Adapter{{Name: "sql", Path: "./loras/sql"}, {Name: "law", Path: "/loras/law"}},
	}
	if diff := cmp.Diff(want, got[0].Runtime); diff != "" {
		t.Errorf("runtime (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"python3", "guard.py", "--strict"}, got[0].Handler); diff != "" {
		t.Errorf("handler (-want +got):\n%s", diff)
	}
}

func TestForModelNamesTheFunctionAfterTheFile(t *testing.T) {
	for ref, want := range map[string]struct {
		name    api.FunctionName
		aliases []api.ModelName
	}{
		"pico": {"default/pico", nil},
		"https://host/x.gguf?include=*.gguf#sha256=00": {"default/x", nil},
		"/models/Qwen2.5-0.5B-Q8_0.gguf":               {"default/qwen2-5-0-5b-q8-0", []api.ModelName{"Qwen2.5-0.5B-Q8_0"}},
		"ollama://qwen2.5:0.5b":                        {"default/qwen2-5-0-5b", []api.ModelName{"qwen2.5:0.5b"}},
		"./0x.gguf":                                    {"default/m-0x", []api.ModelName{"0x"}},
		"/m/" + strings.Repeat("a", 80):                {api.FunctionName("default/" + strings.Repeat("a", 63)), []api.ModelName{api.ModelName(strings.Repeat("a", 80))}},
	} {
		f, err := config.ForModel(ref, "test")
		if err != nil {
			t.Errorf("ForModel(%q): %v", ref, err)
			continue
		}
		if diff := cmp.Diff(want.aliases, f.Aliases); f.Name != want.name || diff != "" {
			t.Errorf("ForModel(%q) = %s, want %s; aliases (-want +got):\n%s", ref, f.Name, want.name, diff)
		}
	}
	if _, err := config.ForModel("...", "test"); err == nil {
		t.Error("ForModel(...) made a name of nothing")
	}
}

// TestShownManifests parses the manifests in docs/machine.md, and the one in README.md.
func TestShownManifests(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/machine.md")
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(string(readme), "```yaml\n")
	first, _, _ = strings.Cut(first, "```")
	shown, err := config.Parse(strings.NewReader(first), "README.md", "/models-of")
	if err != nil || len(shown) != 1 || shown[0].Runtime.Kind != api.RuntimeVLLM || shown[0].Memory.Devices != 1 {
		t.Errorf("the README shows %+v, %v", shown, err)
	}
	var got []api.Function
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		manifest, _, closed := strings.Cut(block, "```")
		if !closed {
			t.Fatal("a manifest has no end")
		}
		if strings.HasPrefix(manifest, "# prometheus.yml") {
			continue
		}
		functions, err := config.Parse(strings.NewReader(manifest), "machine.md", "/models-of")
		if err != nil {
			t.Fatal(err)
		}
		if len(functions) == 1 && strings.Count(manifest, "\n") > 10 {
			t.Errorf("the manifest of %s has more than ten lines", functions[0].Name)
		}
		got = append(got, functions...)
	}
	want := []api.Runtime{
		{Kind: api.RuntimeOllama, Model: "ollama://qwen2.5:0.5b"},
		{Kind: api.RuntimeVLLM, Model: "Qwen/Qwen3-0.6B", Args: []string{"--max-model-len", "8192"}},
		{Kind: api.RuntimeEngine, Model: "/models-of/models/chat.gguf"},
		{Kind: api.RuntimeCommand, Command: []string{"my-server", "--port", "$(PORT)"}, Sleeps: true},
	}
	if len(got) != len(want) {
		t.Fatalf("%d functions, want %d", len(got), len(want))
	}
	for i, f := range got {
		if diff := cmp.Diff(want[i], f.Runtime); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
	}
	if got[1].Memory.Devices != 1 || got[1].SleepAfter != 5*time.Minute || got[2].Memory.Host != 2*api.GiB {
		t.Errorf("%+v and %+v lack what they declare", got[1], got[2])
	}
}

// TestGPUsOfRequests checks that GPUs count if only the requests name them, as in a revision.
func TestGPUsOfRequests(t *testing.T) {
	got, err := config.Parse(strings.NewReader(strings.Replace(full, "limits: {nvidia.com/gpu: 2}", "limits: {}", 1)), "m.yaml", ".")
	if err != nil || got[0].Memory.Devices != 0 {
		t.Fatalf("%+v, %v: want no GPU", got, err)
	}
	got, err = config.Parse(strings.NewReader(strings.Replace(full, "requests: {memory: 512Mi}", "requests: {nvidia.com/gpu: 3}", 1)), "m.yaml", ".")
	if err != nil || got[0].Memory.Devices != 2 {
		t.Fatalf("%+v, %v: want the limit's 2 GPUs", got, err)
	}
	got, err = config.Parse(strings.NewReader(strings.NewReplacer("requests: {memory: 512Mi}", "requests: {nvidia.com/gpu: 3}", "limits: {nvidia.com/gpu: 2}", "limits: {}").Replace(full)), "m.yaml", ".")
	if err != nil || got[0].Memory.Devices != 3 {
		t.Fatalf("%+v, %v: want the requests' 3 GPUs", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, s string) {
		functions, err := config.Parse(strings.NewReader(s), "m.yaml", ".")
		if err != nil {
			return
		}
		for _, fn := range functions {
			if err := api.CheckName(fn.Name.Name()); err != nil || fn.MaxScale < fn.MinScale || fn.Concurrency < 1 {
				t.Errorf("accepted %+v: %v", fn, err)
			}
		}
	})
}

// TestManifestAsInACluster checks that the notation for clusters works on one machine too.
func TestManifestAsInACluster(t *testing.T) {
	manifest := strings.NewReplacer(
		"args: [--threads", "args: [--, --threads",
		"rouse.dev/sleep-after: 30s", `rouse.dev/request-timeout: "0"`+"\n        rouse.dev/first-byte-timeout: 20s\n        rouse.dev/idle-timeout: 10s",
		`min-scale: "1"`, `minScale: "2"`,
		`max-scale: "3"`, `max-scale: "0"`,
	).Replace(full)
	got, err := config.Parse(strings.NewReader(manifest), "m.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	f := got[0]
	if diff := cmp.Diff([]string{"--threads", "2"}, f.Runtime.Args); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
	if f.RequestTimeout != 0 || f.FirstByteTimeout != 20*time.Second || f.IdleTimeout != 10*time.Second || f.MinScale != 2 || f.MaxScale < 1000 {
		t.Errorf("function %+v", f)
	}
	command := strings.NewReplacer("args: [--threads, \"2\"]", "args: [--, serve, --port, $(PORT)]", "rouse.dev/model: models/tiny.gguf", "rouse.dev/runtime: command").Replace(full)
	if got, err = config.Parse(strings.NewReader(command), "m.yaml", "."); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"serve", "--port", "$(PORT)"}, got[0].Runtime.Command); diff != "" || len(got[0].Runtime.Args) > 0 {
		t.Errorf("args %q; command (-want +got):\n%s", got[0].Runtime.Args, diff)
	}
}

// TestHub checks other programs' notation for repositories of a hub.
func TestHub(t *testing.T) {
	for ref, want := range map[string]string{
		"hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF":              "hf://Qwen/Qwen2.5-0.5B-Instruct-GGUF?quant=default",
		"hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:q8_0":         "hf://Qwen/Qwen2.5-0.5B-Instruct-GGUF?quant=q8_0",
		"https://hf.co/a/b:F16":                              "hf://a/b?quant=F16",
		"huggingface.co/a/b":                                 "hf://a/b?quant=default",
		"x=hf.co/a/b":                                        "hf://a/b?quant=default",
		"https://huggingface.co/a/b/resolve/main/model.gguf": "https://huggingface.co/a/b/resolve/main/model.gguf",
		"hf://a/b/model.gguf":                                "hf://a/b/model.gguf",
	} {
		f, err := config.ForModel(ref, "a test")
		if err != nil || f.Runtime.Model != want {
			t.Errorf("%s: got %s (%v), want %s", ref, f.Runtime.Model, err, want)
		}
	}
	if f, err := config.ForModel("hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:q8_0", "a test"); err != nil || f.Name != "default/qwen2-5-0-5b-instruct-gguf" {
		t.Errorf("its name is %s (%v)", f.Name, err)
	}
	for text, want := range map[string]bool{"pico": false, "llama3.2": false, "llama3.2:1b": false, "a/b": false, "./x": true, "/x": true, "hf.co/a/b": true, "x.gguf": true, "hf://a/b": true, "n=pico": true} {
		if config.IsReference(text) != want {
			t.Errorf("%s says where a model is: %v", text, !want)
		}
	}
}
