package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
)

// parsed returns the configuration of a command line and an environment.
func parsed(t *testing.T, env []string, args ...string) (functions.Config, error) {
	t.Helper()
	return parsedIn(t, functions.Pod{}, env, args...)
}

func parsedIn(t *testing.T, pod functions.Pod, env []string, args ...string) (functions.Config, error) {
	t.Helper()
	f := flags{pod: pod}
	cmd := Command()
	cmd.ResetFlags()
	f.define(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := f.fromEnvironment(cmd.Flags(), env); err != nil {
		return f.Cfg, err
	}
	err := f.build(cmd.Flags().Args(), env, cmd.Flags().Changed)
	return f.Cfg, err
}

const declared = `{"name":"default/m","model":"m","concurrency":3,"runtime":{"kind":"engine","model":"pico","env":["SECRET=s"]},"startTimeout":1000000000}`

func TestFunctionComesFromTheEnvironmentAndFlagsWin(t *testing.T) {
	env := []string{"HOME=/h", EnvFunction + "=" + declared, EnvEvents + "=unix:/e"}
	got, err := parsed(t, env, "--instance", "m-1", "--concurrency", "5", "--start-timeout", "2s", "--engine-binary", "/bin/rouse", "--devices", "a,b", "--max-body", "1Mi")
	if err != nil {
		t.Fatal(err)
	}
	want := functions.Config{
		Function: api.Function{
			Name: "default/m", Model: "m", Concurrency: 5, StartTimeout: 2 * time.Second,
			Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Env: []string{"SECRET=s"}},
		},
		Instance: "m-1", Engine: "/bin/rouse", Devices: []api.DeviceID{"a", "b"}, MaxBody: api.MiB, Listen: "http://127.0.0.1:8080", Events: "unix:/e", OwnProcess: true,
		Env: []string{"HOME=/h", EnvEvents + "=unix:/e"}, // without the function, which may hold secrets
	}
	if want.Keep = nil; len(got.Keep) == 0 {
		t.Error("no shim by default")
	}
	got.Keep = nil // this program's path
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestCommandAfterTheDashes(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want api.Runtime
	}{
		"a command":         {[]string{"--", "vllm", "serve", "--port=$(PORT)"}, api.Runtime{Kind: api.RuntimeCommand, Command: []string{"vllm", "serve", "--port=$(PORT)"}}},
		"one that sleeps":   {[]string{"--runtime-sleeps", "--model", "q", "--", "vllm"}, api.Runtime{Kind: api.RuntimeCommand, Model: "q", Sleeps: true, Command: []string{"vllm"}}},
		"vLLM's options":    {[]string{"--runtime", "vllm", "--model", "q", "--", "--max-model-len", "99"}, api.Runtime{Kind: api.RuntimeVLLM, Model: "q", Args: []string{"--max-model-len", "99"}}},
		"vLLM otherwise":    {[]string{"--runtime", "vllm", "--model", "q", "--", "python3", "-m", "vllm"}, api.Runtime{Kind: api.RuntimeVLLM, Model: "q", Command: []string{"python3"}, Args: []string{"-m", "vllm"}}},
		"a sidecar":         {[]string{"--runtime", "ollama", "--model", "q", "--runtime-endpoint", "http://127.0.0.1:1"}, api.Runtime{Kind: api.RuntimeOllama, Model: "q", Endpoint: "http://127.0.0.1:1"}},
		"adapters":          {[]string{"--runtime", "vllm", "--model", "q", "--adapter-root", "/l", "--adapters", "a=x,b=y"}, api.Runtime{Kind: api.RuntimeVLLM, Model: "q", AdapterRoot: "/l", Adapters: []api.Adapter{{Name: "a", Path: "x"}, {Name: "b", Path: "y"}}}},
		"no kind, options":  {[]string{"--model", "pico", "--", "--threads", "2"}, api.Runtime{Model: "pico", Args: []string{"--threads", "2"}}},
		"the engine's args": {[]string{"--runtime", "engine", "--model", "pico", "--", "--threads", "2"}, api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Args: []string{"--threads", "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(t, nil, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Function.Runtime); diff != "" {
				t.Errorf("runtime (-want +got):\n%s", diff)
			}
		})
	}
}

// A Knative Service's environment is enough.
func TestEverythingFromTheEnvironment(t *testing.T) {
	env := []string{"K_SERVICE=chat", "HOSTNAME=chat-00001-x", "PORT=8012", "ROUSE_RUNTIME=vllm", "ROUSE_MODEL=Qwen/Qwen3-0.6B", "ROUSE_CONCURRENCY=7", "ENABLE_DIAGNOSTICS=true"}
	got, err := parsed(t, env)
	if err != nil {
		t.Fatal(err)
	}
	fn := api.Function{Name: "default/chat", Concurrency: 7, Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: "Qwen/Qwen3-0.6B"}}
	if diff := cmp.Diff(fn, got.Function); diff != "" || got.Instance != "chat-00001-x" || got.Listen != "http://:8012" || !got.Diagnostics {
		t.Errorf("instance %s at %s, diagnostics %t; function (-want +got):\n%s", got.Instance, got.Listen, got.Diagnostics, diff)
	}
	if got, err = parsed(t, env, "--concurrency", "3"); err != nil || got.Function.Concurrency != 3 {
		t.Errorf("concurrency %d, %v: want that the flag wins", got.Function.Concurrency, err)
	}
	if _, err := parsed(t, []string{"ROUSE_CONCURRENCY=many"}); err == nil || !strings.Contains(err.Error(), "ROUSE_CONCURRENCY") {
		t.Errorf("error %v, want one that names the variable", err)
	}
	// In local mode the function is given whole, and the shell's variables do not apply to it.
	if got, err = parsed(t, append(env, EnvFunction+"="+declared)); err != nil || got.Function.Runtime.Model != "pico" || got.Function.Concurrency != 3 {
		t.Errorf("model %s, concurrency %d, %v: want those of the JSON", got.Function.Runtime.Model, got.Function.Concurrency, err)
	}
	if got, err = parsed(t, nil, "--listen", ":8090", "--events", "localhost:8091", "--runtime", "vllm", "--runtime-endpoint", "localhost:8000"); err != nil ||
		got.Listen != "http://:8090" || got.Events != "http://localhost:8091" || got.Function.Runtime.Endpoint != "http://localhost:8000" {
		t.Errorf("addresses without http://: %s, %s, %s, %v", got.Listen, got.Events, got.Function.Runtime.Endpoint, err)
	}
	for args, want := range map[string]string{"--listen 8090": "--listen: address", "--events https://a": "--events or $", "--control localhost": "--control: ", "--runtime-endpoint x": "--runtime-endpoint: "} {
		if _, err := parsed(t, nil, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", args, err, want)
		}
	}
	if _, err := parsed(t, []string{"PORT=x"}); err == nil || !strings.Contains(err.Error(), "$PORT: ") {
		t.Errorf("PORT=x: %v, want an error that names the variable", err)
	}
	if got, err = parsed(t, nil); err != nil || got.Listen != "http://127.0.0.1:8080" || got.Function.Name != "default/function" {
		t.Errorf("without anything: %s at %s, %v; want loopback", got.Function.Name, got.Listen, err)
	}
}

func TestFunctionFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(file, []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	// The file wins over the environment.
	got, err := parsed(t, []string{EnvFunction + `={"name":"default/other"}`}, "--spec", file)
	if err != nil || got.Function.Name != "default/m" {
		t.Errorf("function %q, %v; want default/m", got.Function.Name, err)
	}
	for name, tt := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no such file":  {nil, []string{"--spec", file + "x"}, "--spec"},
		"unknown field": {[]string{EnvFunction + `={"nme":"x"}`}, nil, "nme"},
		"bad size":      {nil, []string{"--max-body", "much"}, "--max-body"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsed(t, tt.env, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// What a pod knows of itself goes before variables, which its function's own settings may set.
func TestAPodKnowsItself(t *testing.T) {
	env := []string{"K_REVISION=chat-00002", "HOSTNAME=true", "POD_NAMESPACE=mine"}
	got, err := parsedIn(t, functions.Pod{Name: "chat-00002-x", Namespace: "team"}, env)
	if err != nil {
		t.Fatal(err)
	}
	if got.Instance != "chat-00002-x" || got.Join.Namespace != "team" {
		t.Errorf("instance %s in %s", got.Instance, got.Join.Namespace)
	}
}

// In a revision's pod the control plane defines the function. The container's settings win, except two variables that annotations
// override.
func TestAPodJoins(t *testing.T) {
	pod := []string{"K_REVISION=chat-00002", "K_SERVICE=chat", "POD_NAMESPACE=team", "HOSTNAME=chat-00002-x", "PORT=8080", "NVIDIA_VISIBLE_DEVICES=GPU-a::1", "ROUSE_MODEL=from-env", "ROUSE_CONCURRENCY=7"}
	annotated := api.Function{Name: "team/chat-00002", Service: "team/chat", Model: "chat", Concurrency: 8, MaxScale: 3, Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: "annotated"}}
	for name, tt := range map[string]struct {
		env  []string
		args []string
		says api.Function
		want api.Function
	}{
		"annotations": {nil, []string{"--", "--max-model-len", "99"}, annotated,
			api.Function{Name: "team/chat-00002", Service: "team/chat", Model: "chat", Concurrency: 7, MaxScale: 3, Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: "annotated", Args: []string{"--max-model-len", "99"}}}},
		"flags win": {nil, []string{"--model", "mine", "--runtime", "sglang", "--served-model-name", "m"}, annotated,
			api.Function{Name: "team/chat-00002", Service: "team/chat", Model: "m", Concurrency: 7, MaxScale: 3, Runtime: api.Runtime{Kind: api.RuntimeSGLang, Model: "mine"}}},
		"nobody answers": {[]string{"ROUSE_RUNTIME=ollama"}, nil, api.Function{},
			api.Function{Name: "team/chat-00002", Service: "team/chat", Concurrency: 7, Runtime: api.Runtime{Kind: api.RuntimeOllama, Model: "from-env"}}},
		"a command": {nil, []string{"--", "serve", "--port", "8080", "--at=:8080", "--x=18080", "80801"}, api.Function{Name: "team/chat-00002", Service: "team/chat"},
			api.Function{Name: "team/chat-00002", Service: "team/chat", Concurrency: 7, Runtime: api.Runtime{Kind: api.RuntimeCommand, Model: "from-env", Command: []string{"serve", "--port", "$(PORT)", "--at=:$(PORT)", "--x=18080", "80801"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(t, slices.Concat(pod, tt.env), tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			j := got.Join
			if j == nil || j.Control != control.DefaultControlURL || j.Namespace != "team" || j.Revision != "chat-00002" {
				t.Fatalf("join %+v", j)
			}
			if got.Function.Name != "team/chat-00002" || got.Function.Service != "team/chat" || got.Instance != "chat-00002-x" || len(got.Devices) != 1 || got.Devices[0] != "GPU-a" {
				t.Errorf("function %s of %s, instance %s, devices %q", got.Function.Name, got.Function.Service, got.Instance, got.Devices)
			}
			if got.MetricsListen != ":9089" {
				t.Errorf("metrics are at %q", got.MetricsListen)
			}
			if diff := cmp.Diff(tt.want, j.Merge(tt.says)); diff != "" {
				t.Errorf("function (-want +got):\n%s", diff)
			}
		})
	}
	for name, tt := range map[string]struct {
		env  []string
		args []string
	}{
		"turned off":       {append(pod, "ROUSE_CONTROL=none"), nil},
		"given as JSON":    {append(pod, EnvFunction+"="+declared), nil},
		"no pod":           {[]string{"K_SERVICE=chat"}, nil},
		"off by its flag":  {pod, []string{"--control", "none"}},
		"JSON, and a flag": {append(pod, EnvFunction+"="+declared), []string{"--control", "http://c"}},
	} {
		if got, err := parsed(t, tt.env, tt.args...); err != nil || got.Join != nil {
			t.Errorf("%s: join %+v, %v", name, got.Join, err)
		}
	}
	for value, want := range map[string]string{"none": "", "127.0.0.1:99": "127.0.0.1:99", ":0": ":0"} {
		if got, err := parsed(t, append(pod, "ROUSE_METRICS_LISTEN="+value)); err != nil || got.MetricsListen != want {
			t.Errorf("metrics at %s: %q, %v", value, got.MetricsListen, err)
		}
	}
	if got, err := parsed(t, append(pod, "ROUSE_METRICS_LISTEN=9")); err == nil {
		t.Errorf("metrics at %q", got.MetricsListen)
	}
	if got, err := parsed(t, pod, "--control", "http://c:1", "--namespace", "other"); err != nil || got.Join.Control != "http://c:1" || got.Join.Namespace != "other" {
		t.Errorf("named: %+v, %v", got.Join, err)
	}
	if _, err := parsed(t, nil, "--control", "http://c:1"); err == nil || !strings.Contains(err.Error(), "K_REVISION") {
		t.Errorf("error %v, want one that names K_REVISION", err)
	}
}

// TestConfigOfAllInstances: variables configure all instances of a program as they do one, except for the function and the listen
// address.
func TestConfigOfAllInstances(t *testing.T) {
	env := []string{"A=b", "ROUSE_DRAIN=7s", "ROUSE_PROBE_TIMEOUT=2m", "ROUSE_MAX_BODY=1Mi", "ROUSE_MODEL=x", "ROUSE_LISTEN=:1", "ROUSE_CONCURRENCY=none"}
	want := functions.Config{Drain: 7 * time.Second, ProbeTimeout: 2 * time.Minute, MaxBody: api.MiB, Env: env}
	if got, err := Config(env); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for variable, value := range map[string]string{"ROUSE_DRAIN": "soon", "ROUSE_MAX_BODY": "much"} {
		if _, err := Config([]string{variable + "=" + value}); err == nil || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v, want an error that names it", variable, value, err)
		}
	}
}
