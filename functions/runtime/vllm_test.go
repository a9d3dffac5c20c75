package runtime_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// TestCacheEvents: a server with cache events publishes them on a private socket, unless its options name an endpoint.
func TestCacheEvents(t *testing.T) {
	const on = `{"enable_kv_cache_events":true,"topic":"kv"}`
	own := func(cfg runtime.Config) string { return "ipc://" + filepath.Join(cfg.Dir, "kv.sock") }
	for name, c := range map[string]struct {
		args     []string
		endpoint string // "own", "" or another one
		wrong    bool
	}{
		"none":              {nil, "", false},
		"as two":            {[]string{"--kv-events-config", on, "--max-model-len", "5"}, "own", false},
		"as one":            {[]string{"--kv_events_config=" + on}, "own", false},
		"not said":          {[]string{"--kv-events-config", `{}`}, "own", false},
		"off":               {[]string{"--kv-events-config", `{"enable_kv_cache_events":false}`}, "", false},
		"to nobody":         {[]string{"--kv-events-config", `{"enable_kv_cache_events":true,"publisher":"null"}`}, "", false},
		"a port":            {[]string{"--kv-events-config", `{"endpoint":"tcp://*:5557"}`}, "tcp://127.0.0.1:5557", false},
		"somebody's socket": {[]string{"--kv-events-config", `{"endpoint":"tcp://collector:5557"}`}, "", false},
		"several servers":   {[]string{"--data-parallel-size", "2", "--kv-events-config", on}, "", false},
		"null":              {[]string{"--kv-events-config", "null"}, "", false},
		"no object":         {[]string{"--kv-events-config", "yes"}, "", true},
		"no value":          {[]string{"--kv-events-config"}, "", true},
	} {
		for _, kind := range []string{api.RuntimeVLLM, api.RuntimeSGLang} {
			cfg := config(t, api.Runtime{Kind: kind, Model: "x", Command: []string{program(t, "server")}, Args: c.args})
			r, err := runtime.New(cfg)
			if c.wrong {
				if err == nil || !strings.Contains(err.Error(), "enable_kv_cache_events") {
					t.Errorf("%s, %s: %v, want what to write", name, kind, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			want := c.endpoint
			if want == "own" {
				want = own(cfg)
			}
			if got := r.(runtime.Publisher).CacheEvents(); got != want {
				t.Errorf("%s, %s: events come from %q, want %q", name, kind, got, want)
			}
			l, err := r.Launch("x")
			if err != nil {
				t.Fatal(err)
			}
			if args := strings.Join(l.Args, " "); strings.Contains(args, own(cfg)) != (c.endpoint == "own") || len(c.args) > 2 && !strings.Contains(args, c.args[2]) {
				t.Errorf("%s, %s: it is started with %s", name, kind, args)
			}
		}
	}
}

func TestVLLMLaunch(t *testing.T) {
	vllm := program(t, "vllm")
	command := []string{vllm, "serve"}
	names := []string{"--served-model-name", "m", "n", "default", "--uds", "SOCKET", "--allowed-media-domains"}
	nobody := append(slices.Clone(names), "media.invalid")
	for name, tt := range map[string]struct {
		spec    api.Runtime
		model   string
		devices int
		args    []string
		env     []string
	}{
		"plain": {
			spec: api.Runtime{Args: []string{"--max-model-len", "4096"}, Env: []string{"HF_TOKEN=t"}}, model: "/models/x",
			args: slices.Concat([]string{"serve", "/models/x"}, nobody, []string{"--enable-sleep-mode", "--max-model-len", "4096"}),
			env:  []string{"HOME=/h", "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0", "VLLM_SERVER_DEV_MODE=1", "HF_TOKEN=t"},
		},
		"no sleep in place": {
			spec: api.Runtime{Args: []string{"--no_enable_sleep_mode"}}, model: "org/x",
			args: slices.Concat([]string{"serve", "org/x"}, nobody, []string{"--no_enable_sleep_mode"}),
			env:  []string{"HOME=/h", "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0"},
		},
		"adapters and devices": {
			spec: api.Runtime{AdapterRoot: "/adapters"}, model: "hf://org/x@v1", devices: 2,
			args: slices.Concat([]string{"serve", "org/x"}, nobody, []string{"--revision", "v1", "--enable-sleep-mode", "--enable-lora", "--tensor-parallel-size", "2"}),
			env:  []string{"HOME=/h", "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0", "VLLM_SERVER_DEV_MODE=1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"},
		},
		"hosts of media": {
			spec: api.Runtime{MediaHosts: []string{"a.example", "b.example:8443"}}, model: "x",
			args: slices.Concat([]string{"serve", "x"}, names, []string{"a.example", "b.example", "--enable-sleep-mode"}),
			env:  []string{"HOME=/h", "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0", "VLLM_SERVER_DEV_MODE=1"},
		},
		"parallel otherwise": {
			spec: api.Runtime{Args: []string{"-pp=2"}}, model: "x", devices: 2,
			args: slices.Concat([]string{"serve", "x"}, nobody, []string{"--enable-sleep-mode", "-pp=2"}),
			env:  []string{"HOME=/h", "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0", "VLLM_SERVER_DEV_MODE=1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Kind, tt.spec.Model, tt.spec.Command = api.RuntimeVLLM, tt.model, command
			cfg := config(t, tt.spec)
			cfg.Devices = tt.devices
			cfg.Env = append(cfg.Env, "VLLM_PORT=tcp://10.0.0.1:8000", "VLLM_API_KEY=secret")
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := runtime.Launch{Path: vllm, Args: tt.args, Env: tt.env, Endpoint: inside}
			if diff := cmp.Diff(want, launched(t, r, tt.model)); diff != "" {
				t.Errorf("launch (-want +got):\n%s", diff)
			}
			if sleeps := r.Traits().Sleeps; sleeps == (name == "no sleep in place") {
				t.Errorf("it sleeps in place: %v", sleeps)
			}
		})
	}
}

func TestVLLMSleeps(t *testing.T) {
	f := newFake(t).on("POST /sleep", 200, nothing).on("GET /is_sleeping", 200, `{"is_sleeping":true}`)
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level2); err != nil {
		t.Fatal(err)
	}
	f.asked("POST /sleep?level=2&mode=wait", "GET /is_sleeping")

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/v1/completions":
			<-r.Context().Done() // it holds requests while it sleeps
		case "/is_sleeping":
			_, _ = io.WriteString(w, `{"is_sleeping":true}`)
		}
	}))
	defer s.Close()
	if _, err := r.Wake(t.Context(), api.Endpoint(s.URL), api.Level1, nil); err == nil || !strings.Contains(err.Error(), "says that it sleeps") {
		t.Errorf("wake of one that sleeps on: %v", err)
	}

	f = newFake(t).on("POST /sleep", 200, nothing).on("GET /is_sleeping", 200, `{"is_sleeping":false}`)
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err == nil || !strings.Contains(err.Error(), "says that it is awake") {
		t.Errorf("sleep of one that stays awake: %v", err)
	}
	f = newFake(t).on("POST /v1/completions", 200, token)
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err == nil || !strings.Contains(err.Error(), "--enable-sleep-mode") {
		t.Errorf("sleep of one without the mode: %v", err)
	}
	f.asked("POST /sleep?level=1&mode=wait")
	if _, err := r.Wake(t.Context(), f.endpoint(), api.Level1, nil); err != nil {
		t.Errorf("wake of one that could not sleep: %v", err)
	}
	f.asked("POST /wake_up", probed("m"))
}

// vLLM goes on listing adapters whose weights a sleep at level 2 has dropped.
func TestVLLMLoadsAdaptersAgain(t *testing.T) {
	f := newFake(t).on("POST /wake_up", 200, nothing).on("POST /collective_rpc", 200, nothing).on("POST /reset_prefix_cache", 200, nothing).
		on("GET /is_sleeping", 200, `{"is_sleeping":false}`).on("POST /v1/completions", 200, token).
		on("GET /v1/models", 200, `{"data":[{"id":"m","root":"/x"},{"id":"a","root":"/adapters/a","parent":"m"}]}`).
		on("POST /v1/load_lora_adapter", 200, "Success").on("POST /v1/unload_lora_adapter", 200, "Success")
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x", AdapterRoot: "/adapters"})
	if _, err := r.Wake(t.Context(), f.endpoint(), api.Level2, nil); err != nil {
		t.Fatal(err)
	}
	f.asked("POST /wake_up?tags=weights", `POST /collective_rpc {"method":"reload_weights"}`, "POST /wake_up?tags=kv_cache", "POST /reset_prefix_cache",
		"GET /v1/models", `POST /v1/unload_lora_adapter {"lora_name":"a"}`,
		`POST /v1/load_lora_adapter {"lora_name":"a","lora_path":"/adapters/a"}`, probed("m"))
}

// vLLM 0.32 reports if it could not discard the lost weights' results.
func TestVLLMForgets(t *testing.T) {
	for body, want := range map[string]bool{`{"success":true}`: true, nothing: true, `{"success":false}`: false} {
		f := newFake(t).on("POST /wake_up", 200, nothing).on("POST /collective_rpc", 200, nothing).on("POST /reset_prefix_cache", 200, body).
			on("GET /is_sleeping", 200, `{"is_sleeping":false}`).on("POST /v1/completions", 200, token)
		r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
		_, err := r.Wake(t.Context(), f.endpoint(), api.Level2, nil)
		if again := r.Reload(t.Context(), f.endpoint()); (err == nil) != want || (again == nil) != want || !want && !strings.Contains(err.Error(), "prefix cache") {
			t.Errorf("%s: a wake says %v, and new weights %v", body, err, again)
		}
	}
}

// A connector that keeps the KV cache elsewhere is reset only when weights are loaded again.
func TestVLLMConnectorForgets(t *testing.T) {
	for _, option := range []string{"--kv-offloading-size=8", `--kv-transfer-config={"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`} {
		f := newFake(t).on("POST /wake_up", 200, nothing).on("POST /collective_rpc", 200, nothing).on("POST /reset_prefix_cache", 200, nothing).
			on("GET /is_sleeping", 200, `{"is_sleeping":false}`).on("POST /v1/completions", 200, token)
		r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{option}})
		if _, err := r.Wake(t.Context(), f.endpoint(), api.Level2, nil); err != nil {
			t.Fatal(err)
		}
		f.asked("POST /wake_up?tags=weights", `POST /collective_rpc {"method":"reload_weights"}`, "POST /wake_up?tags=kv_cache", "POST /reset_prefix_cache?reset_external=true", probed("m"))
		if err := r.Reload(t.Context(), f.endpoint()); err != nil {
			t.Fatal(err)
		}
		f.asked(`POST /collective_rpc {"method":"reload_weights"}`, "POST /reset_prefix_cache?reset_external=true")
		if _, err := r.Wake(t.Context(), f.endpoint(), api.Level1, nil); err != nil {
			t.Fatal(err)
		}
		f.asked("POST /wake_up", probed("m"))
	}
}

func TestVLLMAdapters(t *testing.T) {
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x", AdapterRoot: "/adapters"})
	a := api.Adapter{Name: "a", Path: "/adapters/a"}
	for name, tt := range map[string]struct {
		status      int
		body        string
		load        string // the error's text; empty: none
		unsupported bool
	}{
		"loaded":        {200, "Success: LoRA adapter 'a' added successfully.", "", false},
		"loaded before": {400, `{"object":"error","message":"The lora adapter 'a' has already been loaded.","type":"InvalidUserInput","code":400}`, "", false},
		"no files":      {404, `{"error":{"message":"No adapter found for /adapters/a","type":"NotFoundError","code":404}}`, "No adapter found", false},
		"no such call":  {404, noPath, "--enable-lora", true},
	} {
		f := newFake(t).on("POST /v1/load_lora_adapter", tt.status, tt.body)
		err := r.LoadAdapter(t.Context(), f.endpoint(), a)
		if (err == nil) != (tt.load == "") || err != nil && !strings.Contains(err.Error(), tt.load) || errors.Is(err, errors.ErrUnsupported) != tt.unsupported {
			t.Errorf("%s: %v, want %q", name, err, tt.load)
		}
	}
	f := newFake(t).on("POST /v1/unload_lora_adapter", 404, `{"error":{"message":"The lora adapter 'a' cannot be found.","type":"NotFoundError","code":404}}`)
	if err := r.UnloadAdapter(t.Context(), f.endpoint(), "a"); err != nil {
		t.Errorf("unload of one that is not loaded: %v", err)
	}
	without := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
	if err := without.LoadAdapter(t.Context(), f.endpoint(), a); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("load where none are declared: %v", err)
	}
}

// A sidecar that another instance has left asleep is woken, at any level. Failures on the way are retried, and so is a later sleep by
// somebody else.
func TestVLLMSidecarIsLeftAsleep(t *testing.T) {
	f := newFake(t).on("GET /v1/models", 200, `{"data":[{"id":"org/x"}]}`).on("POST /v1/completions", 200, token).
		on("GET /is_sleeping", 200, `{"is_sleeping":true}`).on("GET /is_sleeping", 200, `{"is_sleeping":true}`).on("GET /is_sleeping", 200, `{"is_sleeping":false}`).
		on("GET /is_sleeping", 200, `{"is_sleeping":true}`).
		on("POST /wake_up", 500, "out of memory").on("POST /wake_up", 200, nothing).
		on("POST /collective_rpc", 200, nothing).on("POST /reset_prefix_cache", 200, nothing)
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Endpoint: f.endpoint()})
	if _, err := r.Launch(""); err != nil {
		t.Fatal(err)
	}
	if err := r.Probe(t.Context(), f.endpoint()); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a wake that failed: %v", err)
	}
	f.asked("GET /is_sleeping", "POST /wake_up?tags=weights")
	for _, want := range [][]string{
		{"GET /is_sleeping", "POST /wake_up?tags=weights", `POST /collective_rpc {"method":"reload_weights"}`, "POST /wake_up?tags=kv_cache", "POST /reset_prefix_cache",
			"GET /v1/models", "GET /v1/models", probed("org/x")},
		{"GET /is_sleeping", probed("org/x")},
		{"GET /is_sleeping", "POST /wake_up?tags=weights", `POST /collective_rpc {"method":"reload_weights"}`, "POST /wake_up?tags=kv_cache", "POST /reset_prefix_cache",
			"GET /v1/models", probed("org/x")},
	} {
		if err := r.Probe(t.Context(), f.endpoint()); err != nil {
			t.Fatal(err)
		}
		f.asked(want...)
	}
}

// A sidecar is asked for its name of the model.
func TestVLLMSidecar(t *testing.T) {
	f := newFake(t).on("GET /v1/models", 200, `{"data":[{"id":"org/x"}]}`).on("POST /v1/completions", 200, token)
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Endpoint: f.endpoint()})
	l, err := r.Launch("")
	if diff := cmp.Diff(runtime.Launch{Attach: true, Endpoint: f.endpoint()}, l); diff != "" || err != nil {
		t.Errorf("launch: %v (-want +got):\n%s", err, diff)
	}
	if err := r.Probe(t.Context(), f.endpoint()); err != nil {
		t.Fatal(err)
	}
	f.asked("GET /is_sleeping", "GET /v1/models", probed("org/x"))
	for asked, want := range map[string]string{"m": "org/x", "n": "org/x", "default": "org/x", "org/x": "org/x", "an-adapter": "an-adapter"} {
		if got := request(t, r, "/v1/completions", `{"model": "`+asked+`", "prompt": "a"}`); got != `{"model": "`+want+`", "prompt": "a"}` {
			t.Errorf("%s: %s, want the model %s", asked, got, want)
		}
	}
}

// TestVLLMWithoutSleepMode: on a platform without sleep mode vLLM refuses our option, and later starts omit it. If the option is the
// function's own, the failure is permanent.
func TestVLLMWithoutSleepMode(t *testing.T) {
	const said = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n" +
		"  Value error, Sleep mode is not supported on current platform. [type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]\n"
	for _, own := range []bool{false, true} {
		spec := api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Command: []string{program(t, "vllm"), "serve"}}
		if own {
			spec.Args = []string{"--enable-sleep-mode"}
		}
		r := adapter(t, spec)
		if without := r.(runtime.Yielder).Yield("CUDA out of memory"); without != "" || !r.Traits().Sleeps {
			t.Errorf("after another failure it does without %q", without)
		}
		if without := r.(runtime.Yielder).Yield(said); (without == "") != own {
			t.Errorf("the option is the function's: %t, and it does without %q", own, without)
		}
		if without := r.(runtime.Yielder).Yield(said); without != "" {
			t.Errorf("it does without %q once more", without)
		}
		l := launched(t, r, "x")
		if has := slices.Contains(l.Args, "--enable-sleep-mode"); has != own {
			t.Errorf("the option is the function's: %t, and the next start has it: %t", own, has)
		}
		if has := slices.Contains(l.Env, "VLLM_SERVER_DEV_MODE=1"); has != own || r.Traits().Sleeps != own {
			t.Errorf("the option is the function's: %t, the next start has the developer mode: %t, it sleeps in place: %t", own, has, r.Traits().Sleeps)
		}
		if runtime.Hopeless(said) == "" {
			t.Error("another start with the option is not hopeless")
		}
	}
}
