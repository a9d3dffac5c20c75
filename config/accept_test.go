package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// declared returns a front door's manifest of default/chat with these annotations and container fields.
func declared(annotations, container string) string {
	return `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec: {template: {metadata: {annotations: {` + annotations + `}}, spec: {containers: [{image: x` + container + `}]}}}
`
}

// TestAccept checks that a front door's function cannot name a program, path or address of this cluster, and that
// harmless settings are accepted.
func TestAccept(t *testing.T) {
	for _, c := range []struct{ name, annotations, container, want string }{
		{"an interpreter", "rouse.dev/model: pico", `, args: [--device, cuda, --python, /tmp/program]`, `no argument "--python" of the runtime engine`},
		{"joined", "rouse.dev/model: pico", `, args: ["--python=/tmp/program"]`, `"--python"`},
		{"behind --", "rouse.dev/model: pico", `, args: ["--", --threads, "2", --python, sh]`, `"--python"`},
		{"as a value", "rouse.dev/model: pico", `, args: [--threads, "--python=sh"]`, `no value "--python=sh" of the argument --threads`},
		{"an address", "rouse.dev/model: pico", `, args: [--listen, "0.0.0.0:1"]`, `"--listen"`},
		{"a model by option", "rouse.dev/model: pico", `, args: [--model, /etc/passwd]`, `"--model"`},
		{"a folder", "rouse.dev/model: pico", `, args: [--tile-dir, /home]`, `"--tile-dir"`},
		{"an adapter by option", "rouse.dev/model: pico", `, args: [--lora, a=/etc]`, `"--lora"`},
		{"a path as a value", "rouse.dev/model: pico", `, args: [--tool-call-parser, /etc/passwd]`, "without paths and URLs"},
		{"without a value", "rouse.dev/model: pico", `, args: [--threads]`, "has no value"},
		{"a word", "rouse.dev/model: pico", `, args: [--sync, sh]`, `no argument "sh"`},
		{"a file", "rouse.dev/model: /etc/passwd", "", "no function with the model /etc/passwd"},
		{"a missing file", "rouse.dev/model: /no/such", "", "no function with the model /no/such"},
		{"a file as a URL", "rouse.dev/model: 'file:///etc/passwd'", "", "no function with the model"},
		{"a file in the environment", "", ", env: [{name: ROUSE_MODEL, value: /etc/passwd}]", "no function with the model"},
		{"a relative file", "rouse.dev/model: secret.gguf", "", "no function with the model"},
		{"a URL", "rouse.dev/model: 'http://169.254.169.254/latest'", "", "no function with the model"},
		{"a bucket", "rouse.dev/model: 's3://private/model.gguf'", "", "no function with the model"},
		{"another registry", "rouse.dev/runtime: ollama, rouse.dev/model: 'ollama://10.0.0.1:80/a/b'", "", "no function with the model"},
		{"what Ollama has", "rouse.dev/runtime: ollama, rouse.dev/model: 'private:7b'", "", "no function with the model"},
		{"a module", "rouse.dev/runtime: ray-serve, rouse.dev/model: 'evil:app'", "", "no function with the model"},
		{"beside a host", "rouse.dev/model: 'https://models.example@10.0.0.1/x'", "", "no function with the model"},
		{"above a folder", "rouse.dev/model: 'https://models.example/open/../private'", "", "no function with the model"},
		{"above, encoded", "rouse.dev/model: 'https://models.example/open/%2e%2e/private'", "", "no function with the model"},
		{"conversations", "rouse.dev/model: pico", ", args: [--conversation-folder, /home]", `"--conversation-folder"`},
		{"adapters of any folder", "rouse.dev/model: pico, rouse.dev/adapter-root: /", "", "the annotation rouse.dev/adapter-root"},
		{"an adapter's path", "rouse.dev/model: pico, rouse.dev/adapters: a=/etc", "", "no adapter at /etc"},
		{"hosts of media", "rouse.dev/model: pico, rouse.dev/media-hosts: 169.254.169.254", "", "the annotation rouse.dev/media-hosts"},
		{"a handler", "rouse.dev/model: pico, rouse.dev/handler: sh", "", "the annotation rouse.dev/handler"},
		{"an endpoint", "rouse.dev/runtime: vllm, rouse.dev/runtime-endpoint: 'http://127.0.0.1:1'", "", "the annotation rouse.dev/runtime-endpoint"},
		{"a command", "rouse.dev/model: pico", ", command: [sh]", "a command, a handler or an environment"},
		{"words before options", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b'", `, args: ["--", sh, -c, id]`, "a command, a handler or an environment"},
		{"an environment", "rouse.dev/model: pico", ", env: [{name: LD_PRELOAD, value: /tmp/x}]", "a command, a handler or an environment"},
		{"a merge", "<<: {rouse.dev/handler: sh}, rouse.dev/model: pico", "", "a merge of YAML"},
		{"vLLM's file", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b'", `, args: [--config, x.yaml]`, `"--config"`},
		{"vLLM's code", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b'", `, args: [--trust-remote-code]`, `"--trust-remote-code"`},
		{"the beginning of an option", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b'", `, args: [--hos=0]`, `"--hos"`},

		{"the engine", "rouse.dev/model: pico, rouse.dev/adapters: shout=pico/shout, rouse.dev/sleep-after: 1m", `, args: [--conversation-memory, 1Gi, --threads, "2", --max-model-len=512]`, ""},
		{"a hub's", "rouse.dev/model: 'hf://org/name@main?include=*.gguf', rouse.dev/adapters: 'a=hf://org/a'", "", ""},
		{"a named host", "rouse.dev/model: 'https://models.example/open/x.gguf#sha256=" + strings.Repeat("0", 64) + "'", "", ""},
		{"a named folder", "rouse.dev/model: /srv/models/x.gguf", "", ""},
		{"Ollama's", "rouse.dev/runtime: ollama, rouse.dev/model: 'ollama://qwen3:0.6b'", "", ""},
		{"vLLM", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b', autoscaling.knative.dev/max-scale: '2'", `, args: ["--", --override-generation-config, '{"temperature": 0.2, "top_p": 1}', -tp, "2", --enforce-eager]`, ""},
		{"SGLang", "rouse.dev/runtime: sglang, rouse.dev/model: 'hf://a/b'", `, args: [--context-length, "4096", --no-enable-memory-saver, "--random-seed=-1"]`, ""},
		{"llama.cpp", "rouse.dev/runtime: llamacpp, rouse.dev/model: 'hf://a/b'", `, args: [-c, "4096", --temp, "0.2", -n, "-1", --samplers, top_k;temperature]`, ""},
	} {
		accept := config.Accept{Models: slices.Concat(config.AcceptedModels, []string{"https://models.example/open/", "/srv/models/"})}
		f, annotations, err := accept.Read("default/chat", declared(c.annotations, c.container), "front")
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		case c.want == "" && (err != nil || f.Name != "default/chat" || annotations[config.AnnotationModel] == ""):
			t.Errorf("%s: %v, annotations %v", c.name, err, annotations)
		}
	}
}

// TestAcceptSaysNothing checks that a rejection does not reveal whether a path exists.
func TestAcceptSaysNothing(t *testing.T) {
	there, missing := "/etc/passwd", "/etc/passwx"
	_, _, a := config.Accept{}.Read("default/chat", declared("rouse.dev/model: "+there, ""), "front")
	_, _, b := config.Accept{}.Read("default/chat", declared("rouse.dev/model: "+missing, ""), "front")
	if a == nil || b == nil || strings.ReplaceAll(a.Error(), there, missing) != b.Error() {
		t.Errorf("%v\n%v", a, b)
	}
}

// TestAcceptPrograms checks that with Programs everything is accepted except access to a server of this cluster.
func TestAcceptPrograms(t *testing.T) {
	accept := config.Accept{Programs: true}
	f, _, err := accept.Read("default/chat", declared("rouse.dev/model: /x", ", command: [sh], env: [{name: A, value: b}], args: [-c, id]"), "front")
	if err != nil || f.Runtime.Kind != api.RuntimeCommand || len(f.Runtime.Args) != 2 {
		t.Errorf("%+v, %v", f.Runtime, err)
	}
	if _, _, err := accept.Read("default/chat", declared("rouse.dev/runtime: vllm, rouse.dev/runtime-endpoint: 'http://127.0.0.1:1'", ""), "front"); err == nil {
		t.Error("an endpoint is accepted")
	}
}

// TestEveryAnnotationIsJudged checks that a key not known to be harmless is rejected.
func TestEveryAnnotationIsJudged(t *testing.T) {
	operators := []string{
		config.AnnotationEndpoint, "rouse.dev/adapter-root", "rouse.dev/handler",
		"rouse.dev/runtime-sleeps", config.AnnotationDualPods, config.AnnotationProviderPatch, config.AnnotationInject, config.AnnotationMediaHosts, "rouse.dev/reuse-connections", "rouse.dev/snapshot",
	}
	values := map[string]string{
		config.AnnotationRuntime: "engine", config.AnnotationModel: "pico", config.AnnotationAdapters: "a=pico/shout", config.AnnotationEndpoint: "http://127.0.0.1:1", "rouse.dev/adapter-root": "/x",
		config.AnnotationMemory: "1Gi", config.AnnotationDeviceMemory: "1Gi", "rouse.dev/hold-memory": "1Gi",
		"rouse.dev/rehearse": "never", "rouse.dev/suspend": "off", "rouse.dev/evict-sheddable": "true", "rouse.dev/prewake": "true", "rouse.dev/runtime-sleeps": "true", "rouse.dev/reuse-connections": "true", config.AnnotationDualPods: "true",
		config.AnnotationInject: "true", "rouse.dev/client-credentials": "drop", "rouse.dev/prefix-cache": "client", config.AnnotationProviderPatch: `'{"metadata": {"labels": {"a": "b"}}}'`,
		config.AnnotationMediaHosts: "a.example", config.AnnotationClusters: "a", config.AnnotationRegions: "a", "rouse.dev/handler": "sh", "rouse.dev/variant-of": "m",
	}
	harmless := 0
	for _, key := range config.Keys(&api.Function{}) {
		text := values[key.Name]
		if text == "" {
			text = "1"
			if strings.HasSuffix(key.Name, "-after") || strings.HasSuffix(key.Name, "-timeout") || strings.HasSuffix(key.Name, "-ttft") {
				text = "1m"
			}
		}
		annotations := map[string]string{config.AnnotationModel: "pico", key.Name: text}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(annotations)) {
			all = append(all, name+": \""+annotations[name]+"\"")
		}
		yaml := strings.ReplaceAll(strings.ReplaceAll(strings.Join(all, ", "), `"'`, `'`), `'"`, `'`)
		_, _, err := config.Accept{}.Read("default/chat", declared(yaml, ""), "front")
		refused := err != nil && strings.Contains(err.Error(), "from a front door: remove it")
		if slices.Contains(operators, key.Name) {
			if err == nil {
				t.Errorf("%s is accepted", key.Name)
			}
			continue
		}
		if harmless++; refused {
			t.Errorf("%s: %v: say here that it is the operator's, or accept it", key.Name, err)
		} else if err != nil {
			t.Errorf("%s: %v", key.Name, err)
		}
	}
	if harmless < 20 {
		t.Errorf("only %d keys were judged harmless", harmless)
	}
}

func TestAcceptValidate(t *testing.T) {
	for model, want := range map[string]string{"": "no beginning", "/srv/../etc/": "no beginning", "https://": "no host", "/": "no host", "file:///srv/": "no host"} {
		if err := (config.Accept{Models: []string{model}}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", model, err, want)
		}
	}
	if err := (config.Accept{Models: append(slices.Clone(config.AcceptedModels), "/srv/models/", "s3://bucket/models/", "oci://")}).Validate(); err != nil {
		t.Error(err)
	}
}
