package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// podText is a pod as Knative makes it. %s is the serving container's image and what else it has.
const podText = `
metadata:
  generateName: chat-00001-deployment-
  annotations: {rouse.dev/model: m}
  labels: {serving.knative.dev/revision: chat-00001}
spec:
  futureField: kept
  securityContext: {runAsNonRoot: true}
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
  containers:
    - name: user-container
      futureField: kept
      image: %s
      env: [{name: PORT, value: "8080"}, {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: t}}}]
      ports: [{name: user-port, containerPort: 8080}]
      securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true}
      resources: {limits: {nvidia.com/gpu: "1"}}
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
      %s
    - name: queue-proxy
      image: queue
      env: [{name: USER_PORT, value: "8080"}, {name: SERVING_READINESS_PROBE, value: '{"tcpSocket":{"port":8080,"host":"127.0.0.1"},"successThreshold":1}'}]
`

const digest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"

func parse(t *testing.T, text string) (pod corev1.Pod, raw map[string]any) {
	t.Helper()
	if err := errors.Join(yaml.Unmarshal([]byte(text), &pod), yaml.Unmarshal([]byte(text), &raw)); err != nil {
		t.Fatal(err)
	}
	return pod, raw
}

// apply carries out a JSON patch as the API server does.
func apply(t *testing.T, to map[string]any, change []operation) map[string]any {
	t.Helper()
	raw, err := json.Marshal([]any{to, change})
	if err != nil {
		t.Fatal(err)
	}
	var read []any
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	result := read[0]
	for _, o := range read[1].([]any) {
		one := o.(map[string]any)
		steps := strings.Split(one["path"].(string), "/")[1:]
		result = edit(t, result, steps, one["op"].(string), one["value"])
	}
	return result.(map[string]any)
}

func edit(t *testing.T, in any, steps []string, op string, value any) any {
	t.Helper()
	step := strings.ReplaceAll(steps[0], "~1", "/")
	switch in := in.(type) {
	case map[string]any:
		switch {
		case len(steps) > 1:
			if in[step] == nil {
				t.Fatalf("there is no %s", step)
			}
			in[step] = edit(t, in[step], steps[1:], op, value)
		case op == "remove":
			delete(in, step)
		default:
			in[step] = value
		}
		return in
	case []any:
		k := len(in)
		if step != "-" {
			var err error
			if k, err = strconv.Atoi(step); err != nil || k > len(in) {
				t.Fatalf("there is no entry %s", step)
			}
		}
		if len(steps) > 1 {
			in[k] = edit(t, in[k], steps[1:], op, value)
			return in
		}
		return slices.Insert(in, k, value)
	}
	t.Fatalf("%s is in %v", step, in)
	return nil
}

func reads(c *v1.Config, err error) reader {
	return func(context.Context, string) (*v1.Config, error) { return c, err }
}

var errUnread = errors.New("the registry is away")

var from = image{"dev.local/rouse-function:v1", corev1.PullIfNotPresent}

func TestWhatBecomesOfAContainer(t *testing.T) {
	vllm := []string{"--runtime=vllm"}
	for name, tt := range map[string]struct {
		image, container string
		annotations      map[string]string
		config           *v1.Config
		err              error
		args             []string // of the function; nil: it stays as it is
		missing, refused string
	}{
		"vLLM by its name":          {image: "vllm/vllm-openai:v1", args: vllm},
		"by its digest":             {image: "index.docker.io/vllm/vllm-openai" + digest, args: vllm},
		"its options":               {image: "vllm/vllm-openai", container: `args: [--max-model-len, "8192", --port, "8000", --host=0.0.0.0]`, args: append(vllm, "--", "--max-model-len", "8192")},
		"its model":                 {image: "vllm/vllm-openai", container: `args: [--model, Qwen/Q, --served-model-name=q]`, args: append(vllm, "--served-model-name=q", "--model=Qwen/Q")},
		"the annotation's model":    {image: "vllm/vllm-openai", container: `args: [Qwen/Q, -tp, "2"]`, annotations: map[string]string{config.AnnotationModel: "R"}, args: append(vllm, "--", "-tp", "2")},
		"serve":                     {image: "vllm/vllm-openai", container: `args: [serve, Qwen/Q]`, args: append(vllm, "--model=Qwen/Q")},
		"its command":               {image: "reg/any", container: `command: [vllm, serve, Qwen/Q, --dtype, half]`, args: append(vllm, "--model=Qwen/Q", "--", "--dtype", "half")},
		"its module":                {image: "reg/any", container: `command: [python3, -m, vllm.entrypoints.openai.api_server, --model=Qwen/Q]`, args: append(vllm, "--model=Qwen/Q")},
		"a shell that starts it":    {image: "vllm/vllm-openai", container: `command: [sh, -c, vllm serve x]`, refused: "leave the command out, write it as vllm serve"},
		"a shell as a command":      {image: "vllm/vllm-openai", container: `command: [sh, -c, vllm serve x]`, annotations: map[string]string{config.AnnotationRuntime: "command"}, args: []string{"--runtime=command", "--listen=:8014", "--runtime-port=8080", "--", "sh", "-c", "vllm serve x"}},
		"SGLang":                    {image: "lmsysorg/sglang:v1", container: `args: [python3, -m, sglang.launch_server, --model-path, Q, --tp, "2"]`, args: []string{"--runtime=sglang", "--model=Q", "--", "--tp", "2"}},
		"Ollama":                    {image: "ollama/ollama", annotations: map[string]string{config.AnnotationModel: "q"}, args: []string{"--runtime=ollama"}},
		"llama.cpp":                 {image: "ghcr.io/ggml-org/llama.cpp:server", config: &v1.Config{Entrypoint: []string{"/app/llama-server"}}, container: `args: [-m, /m.gguf, -c, "512"]`, args: []string{"--runtime=llamacpp", "--model=/m.gguf", "--", "/app/llama-server", "-c", "512"}},
		"llama.cpp, unread":         {image: "ghcr.io/ggml-org/llama.cpp:server", err: errUnread, args: []string{"--runtime=llamacpp"}},
		"what its entrypoint says":  {image: "reg/mine" + digest, config: &v1.Config{Entrypoint: []string{"/usr/bin/vllm", "serve"}}, args: append(vllm, "--", "/usr/bin/vllm", "serve")},
		"any model server":          {image: "reg/mine" + digest, annotations: map[string]string{config.AnnotationModel: "m"}, config: &v1.Config{Entrypoint: []string{"/serve"}, Cmd: []string{"--price=$(X)"}, StopSignal: "SIGQUIT"}, args: []string{"--runtime=command", "--stop-signal=SIGQUIT", "--listen=:8014", "--runtime-port=8080", "--", "/serve", "--price=$$(X)"}},
		"any server":                {image: "reg/mine" + digest, annotations: map[string]string{config.AnnotationRuntime: "http"}, config: &v1.Config{Entrypoint: []string{"/serve"}, Cmd: []string{"a"}}, container: `args: [b, $(PORT)]`, args: []string{"--runtime=http", "--listen=:8014", "--runtime-port=8080", "--", "/serve", "b", "$(PORT)"}},
		"nobody says what it is":    {image: "reg/mine" + digest, config: &v1.Config{Entrypoint: []string{"/serve"}}, refused: "set the annotation rouse.dev/runtime, to http"},
		"nothing to start":          {image: "reg/mine" + digest, annotations: map[string]string{config.AnnotationRuntime: "http"}, config: &v1.Config{}, refused: "set the container's command"},
		"an unknown runtime":        {image: "reg/mine", container: `command: [a]`, annotations: map[string]string{config.AnnotationRuntime: "vlm"}, refused: `the runtime "vlm"`},
		"an option without a value": {image: "vllm/vllm-openai", container: `args: [--model]`, refused: "the option --model has no value"},
		"of dual pods":              {image: "vllm/vllm-openai", annotations: map[string]string{config.AnnotationDualPods: "true"}, args: vllm},
		"it can't be read":          {image: "reg/mine" + digest, annotations: map[string]string{config.AnnotationRuntime: "http"}, err: errUnread, missing: "the registry is away"},
		"a server's, unread":        {image: "reg/rouse-vllm" + digest, annotations: map[string]string{config.AnnotationRuntime: "vllm"}, err: errUnread, missing: "the registry is away"},
		"a server's, told":          {image: "reg/mine-vllm" + digest, annotations: map[string]string{config.AnnotationRuntime: "vllm", config.AnnotationInject: "true"}, err: errUnread, args: vllm},
		"the function's image":      {image: "dev.local/rouse-function:v1", err: errUnread},
		"an image with it":          {image: "reg/rouse-vllm" + digest, config: &v1.Config{Entrypoint: []string{"/usr/local/bin/rouse-function"}}},
		"an image with rouse":       {image: "reg/mine" + digest, config: &v1.Config{Entrypoint: []string{"/rouse", "function"}}},
		"an image that is one":      {image: "reg/mine" + digest, config: &v1.Config{Entrypoint: []string{"/greeter"}, Labels: map[string]string{labelFunction: "true"}}},
		"a command that is one":     {image: "reg/mine", container: `command: [/rouse-function]`},
		"a sidecar":                 {image: "reg/mine", container: `command: [a]`, annotations: map[string]string{config.AnnotationEndpoint: "http://127.0.0.1:1"}},
		"the engine":                {image: "reg/mine", container: `command: [a]`, annotations: map[string]string{config.AnnotationRuntime: "engine"}},
		"one that was told not to":  {image: "vllm/vllm-openai", annotations: map[string]string{config.AnnotationInject: "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, raw := parse(t, fmt.Sprintf(podText, tt.image, tt.container))
			v, err := decide(t.Context(), &pod, tt.annotations, reads(tt.config, tt.err))
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("%+v, %v; want an error with %q", v, err, tt.refused)
				}
				return
			}
			if err != nil || !strings.Contains(v.missing, tt.missing) || (v.missing == "") != (tt.missing == "") || (v.plan == nil) != (tt.args == nil) {
				t.Fatalf("%+v, %v; want missing %q, and a plan %t", v, err, tt.missing, tt.args != nil)
			}
			if v.plan == nil {
				return
			}
			change, err := mutate(&pod, v.plan, from)
			if err != nil {
				t.Fatal(err)
			}
			c := container(t, apply(t, raw, change), "user-container")
			if diff := cmp.Diff(tt.args, c.Args); diff != "" || !slices.Equal(c.Command, []string{installed}) {
				t.Errorf("command %q; args (-want +got):\n%s", c.Command, diff)
			}
		})
	}
}

// container reads one of a pod's.
func container(t *testing.T, raw map[string]any, name string) corev1.Container {
	t.Helper()
	text, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no container %s in %s", name, text)
	return corev1.Container{}
}

// TestEverythingElseIsKept compares the pod before and after, but for what is meant to change.
func TestEverythingElseIsKept(t *testing.T) {
	pod, raw := parse(t, fmt.Sprintf(podText, "vllm/vllm-openai", ""))
	_, before := parse(t, fmt.Sprintf(podText, "vllm/vllm-openai", ""))
	v, err := decide(t.Context(), &pod, nil, reads(nil, errUnread))
	if err != nil {
		t.Fatal(err)
	}
	change, err := mutate(&pod, v.plan, from)
	if err != nil {
		t.Fatal(err)
	}
	after := apply(t, raw, change)
	first := container(t, after, volume)
	if first.Image != from.name || first.SecurityContext.RunAsUser == nil || *first.SecurityContext.RunAsUser == 0 {
		t.Errorf("the init container is %+v", first)
	}
	spec := after["spec"].(map[string]any)
	delete(spec, "initContainers")
	delete(after["metadata"].(map[string]any)["annotations"].(map[string]any), config.AnnotationInjected)
	spec["volumes"] = spec["volumes"].([]any)[:1]
	own := spec["containers"].([]any)[0].(map[string]any)
	delete(own, "command")
	delete(own, "args")
	own["volumeMounts"] = own["volumeMounts"].([]any)[:1]
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what was not to change (-before +after):\n%s", diff)
	}
}

// TestAgain asks about a pod that was changed already, as the API server does where another webhook changes it after us.
func TestAgain(t *testing.T) {
	pod, raw := parse(t, fmt.Sprintf(podText, "vllm/vllm-openai", ""))
	v, err := decide(t.Context(), &pod, nil, reads(nil, errUnread))
	if err != nil {
		t.Fatal(err)
	}
	change, err := mutate(&pod, v.plan, from)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(apply(t, raw, change))
	if err != nil {
		t.Fatal(err)
	}
	var again corev1.Pod
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if v, err := decide(t.Context(), &again, nil, reads(nil, errUnread)); err != nil || v.plan != nil || v.missing != "" {
		t.Errorf("the second time: %+v, %v; want nothing", v, err)
	}
}

// TestProof mounts the proof of the pod's identity in the serving container alone, and once.
func TestProof(t *testing.T) {
	pod, raw := parse(t, fmt.Sprintf(podText, "dev.local/rouse-function:v1", ""))
	var once, twice patch
	once.addProof(&pod)
	twice.addProof(&pod)
	if len(twice.all) > 0 {
		t.Errorf("the second time: %+v; want nothing", twice.all)
	}
	after := apply(t, raw, once.all)
	c, q := container(t, after, "user-container"), container(t, after, queueProxy)
	m := c.VolumeMounts[len(c.VolumeMounts)-1]
	if !m.ReadOnly || m.MountPath+"/proof" != control.ProofFile || len(q.VolumeMounts) > 0 {
		t.Errorf("mounts %+v and %+v, want one for %s", c.VolumeMounts, q.VolumeMounts, control.ProofFile)
	}
	volumes := pod.Spec.Volumes
	token := volumes[len(volumes)-1].Projected.Sources[0].ServiceAccountToken
	if len(volumes) != 2 || volumes[1].Name != m.Name || token.Audience != control.ProofAudience || token.Path != "proof" {
		t.Errorf("volumes %+v", volumes)
	}
	stock := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "no function"}}}}
	if twice.addProof(&stock); len(twice.all) > 0 {
		t.Errorf("a pod that serves nothing: %+v", twice.all)
	}
}

func TestProbesAskTheFunction(t *testing.T) {
	const probes = `livenessProbe: {httpGet: {path: /live, port: 8080}, periodSeconds: 7}
      readinessProbe: {exec: {command: [check, it]}}
      startupProbe: {tcpSocket: {port: 8080}}`
	readiness := `{"httpGet":{"path":"/ready","port":8080,"host":"127.0.0.1"},"successThreshold":1}`
	for name, tt := range map[string]struct {
		kind                  string
		port                  int
		live, ready, readySaw string
	}{
		"of a model server": {"vllm", 8080, "/healthz", "/healthz", ""},
		"of a command":      {"command", 8014, "/healthz", "/healthz", ""},
		"of any server":     {"http", 8014, "/live", "/ready", "--runtime-probe-command=it"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(fmt.Sprintf(podText, "reg/a", probes+"\n      command: [vllm, serve]"), `{"tcpSocket":{"port":8080,"host":"127.0.0.1"},"successThreshold":1}`, readiness, 1)
			after := injected(t, text, tt.kind)
			c, q := container(t, after, "user-container"), container(t, after, queueProxy)
			if got := c.LivenessProbe; got.HTTPGet.Path != tt.live || got.HTTPGet.Port.IntValue() != tt.port || got.PeriodSeconds != 7 {
				t.Errorf("liveness: %+v", got.HTTPGet)
			}
			if got := c.StartupProbe.TCPSocket.Port.IntValue(); got != tt.port {
				t.Errorf("startup: port %d, want %d", got, tt.port)
			}
			if got := strings.Join(c.ReadinessProbe.Exec.Command, " "); got != fmt.Sprintf("%s probe --port=%d -- check it", installed, tt.port) {
				t.Errorf("readiness: %s", got)
			}
			env := map[string]string{}
			for _, e := range q.Env {
				env[e.Name] = e.Value
			}
			var probe corev1.Probe
			if err := json.Unmarshal([]byte(env["SERVING_READINESS_PROBE"]), &probe); err != nil {
				t.Fatal(err)
			}
			if env["USER_PORT"] != strconv.Itoa(tt.port) || probe.HTTPGet.Port.IntValue() != tt.port || probe.HTTPGet.Path != tt.ready || probe.HTTPGet.Host != "127.0.0.1" {
				t.Errorf("Knative's container has %v", slices.Sorted(maps.Values(env)))
			}
			if got := slices.Contains(c.Args, tt.readySaw); got != (tt.readySaw != "") {
				t.Errorf("args %q, want %q among them: %t", c.Args, tt.readySaw, tt.readySaw != "")
			}
			if portOf(&c) != int32(tt.port) || value(c.Env, "PORT") != "8080" {
				t.Errorf("the container's port is %d and its PORT %s: want %d, and what the server knows", portOf(&c), value(c.Env, "PORT"), tt.port)
			}
		})
	}
}

// TestReadinessByHTTP: the function asks the server what Knative's container was to ask, as often.
func TestReadinessByHTTP(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(podText, "reg/a", "\n      command: [serve]"), `{"tcpSocket":{"port":8080,"host":"127.0.0.1"},"successThreshold":1}`,
		`{"httpGet":{"path":"/ready","port":8080,"host":"127.0.0.1"},"periodSeconds":2,"successThreshold":1}`, 1)
	c := container(t, injected(t, text, api.RuntimeHTTP), "user-container")
	if !slices.Contains(c.Args, "--runtime-probe=/ready") || !slices.Contains(c.Args, "--probe-interval=2s") {
		t.Errorf("args %q", c.Args)
	}
}

// injected returns the pod of a text, for a runtime of the kind, as the injector changes it.
func injected(t *testing.T, text, kind string) map[string]any {
	t.Helper()
	pod, raw := parse(t, text)
	v, err := decide(t.Context(), &pod, map[string]string{config.AnnotationRuntime: kind}, reads(nil, errUnread))
	if err != nil {
		t.Fatal(err)
	}
	change, err := mutate(&pod, v.plan, from)
	if err != nil {
		t.Fatal(err)
	}
	return apply(t, raw, change)
}

// TestProbesByGRPC: they ask the function, which passes them on or answers them.
func TestProbesByGRPC(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(podText, "reg/a", "livenessProbe: {grpc: {port: 8080}}\n      command: [serve]"),
		`{"tcpSocket":{"port":8080,"host":"127.0.0.1"},"successThreshold":1}`, `{"grpc":{"port":8080,"service":""}}`, 1)
	after := injected(t, text, api.RuntimeHTTP)
	if got := container(t, after, "user-container").LivenessProbe.GRPC; got == nil || got.Port != 8014 {
		t.Errorf("liveness: %+v", got)
	}
	for _, e := range container(t, after, queueProxy).Env {
		if e.Name == "SERVING_READINESS_PROBE" && e.Value != `{"grpc":{"port":8014,"service":""}}` {
			t.Errorf("readiness: %s", e.Value)
		}
	}
}
