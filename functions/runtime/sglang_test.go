package runtime_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

func TestSGLangLaunch(t *testing.T) {
	python := program(t, "python3")
	base := []string{"-m", "sglang.launch_server", "--model-path", "org/x", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "PORT", "--enable-metrics", "--config", "CONFIG"}
	for name, tt := range map[string]struct {
		spec    api.Runtime
		devices int
		args    []string
	}{
		"plain": {spec: api.Runtime{Args: []string{"--context-length", "4096"}},
			args: []string{"--enable-memory-saver", "--enable-weights-cpu-backup", "--context-length", "4096"}},
		"hosts of media":    {spec: api.Runtime{MediaHosts: []string{"a.example"}, Args: []string{"--no-enable-memory-saver"}}, args: []string{"--allowed-media-domains", "a.example"}},
		"no sleep in place": {spec: api.Runtime{Args: []string{"--no-enable-memory-saver"}}},
		"adapters and devices": {spec: api.Runtime{AdapterRoot: "/a", Args: []string{"--max-lora-rank", "8"}}, devices: 4,
			args: []string{"--enable-memory-saver", "--enable-weights-cpu-backup", "--enable-lora", "--lora-target-modules", "all", "--tensor-parallel-size", "4", "--max-lora-rank", "8"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Kind, tt.spec.Model, tt.spec.Command = api.RuntimeSGLang, "hf://org/x", []string{python, "-m", "sglang.launch_server"}
			cfg := config(t, tt.spec)
			cfg.Devices = tt.devices
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := runtime.Launch{Path: python, Args: slices.Concat(base, tt.args), Env: []string{"HOME=/h"}, Endpoint: there}
			if slices.Contains(tt.args, "--enable-memory-saver") {
				want.Env = append(want.Env, "SGLANG_MEMORY_SAVER_CUDA_GRAPH=true")
			}
			got := launched(t, r, "hf://org/x")
			file := got.Args[len(base)-1]
			got.Args[len(base)-1] = "CONFIG"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("launch (-want +got):\n%s", diff)
			}
			key := r.(runtime.Keyed).Key()
			raw, err := os.ReadFile(file)
			if info, err2 := os.Stat(file); err != nil || err2 != nil || info.Mode() != 0o600 || len(key) < 20 || string(raw) != "api-key: "+key+"\n" {
				t.Errorf("the file with the key %q: %v %q, %v, %v", key, info, raw, err, err2)
			}
			if again, err := runtime.New(cfg); err != nil || again.(runtime.Keyed).Key() != key {
				t.Errorf("whoever goes on with the server has another key, %v", err)
			}
		})
	}
}

const allTags = ` {"tags":["kv_cache","weights","cuda_graph"]}`

func TestSGLangSleeps(t *testing.T) {
	const kept = `{"enable_memory_saver":true,"enable_weights_cpu_backup":true,"model_path":"/x"}`
	const lost = `{"enable_memory_saver":true,"enable_weights_cpu_backup":false,"model_path":"/x"}`
	for name, tt := range map[string]struct {
		info string
		wake []string
	}{
		"weights in host memory": {kept, []string{"POST /resume_memory_occupation" + allTags, probed("m")}},
		"weights lost": {lost, []string{"POST /resume_memory_occupation" + allTags,
			`POST /update_weights_from_disk {"model_path":"/x"}`, "POST /flush_cache", probed("m")}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t).on("GET /server_info", 200, tt.info).on("POST /release_memory_occupation", 200, "null").
				on("POST /resume_memory_occupation", 200, "null").on("POST /v1/completions", 200, token).
				on("POST /update_weights_from_disk", 200, `{"success":true,"message":"Succeeded"}`).on("POST /flush_cache", 200, nothing)
			r := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x"})
			for _, level := range []api.Level{api.Level1, api.Level2} {
				if err := r.Sleep(t.Context(), f.endpoint(), level); err != nil {
					t.Fatal(err)
				}
				f.asked("GET /server_info", "POST /release_memory_occupation"+allTags)
				if _, err := r.Wake(t.Context(), f.endpoint(), level, nil); err != nil {
					t.Fatal(err)
				}
				f.asked(tt.wake...)
			}
		})
	}
}

// Weights that can't be restored must not be released, and must not serve.
func TestSGLangRefusesGarbage(t *testing.T) {
	r := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x"})
	f := newFake(t).on("GET /server_info", 200, `{"enable_memory_saver":false,"model_path":"/x"}`)
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err == nil || !strings.Contains(err.Error(), "--enable-memory-saver") {
		t.Errorf("sleep without a memory saver: %v", err)
	}
	f.asked("GET /server_info")
	f = newFake(t).on("GET /server_info", 200, `{"enable_weights_cpu_backup":false}`)
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err == nil || !strings.Contains(err.Error(), "--enable-weights-cpu-backup") {
		t.Errorf("sleep without a backup and a path: %v", err)
	}
	f = newFake(t).on("GET /server_info", 200, `{"enable_memory_saver":true,"enable_weights_cpu_backup":false,"model_path":"/x"}`).on("POST /release_memory_occupation", 200, nothing).
		on("POST /resume_memory_occupation", 200, nothing).on("POST /update_weights_from_disk", 200, `{"success":false,"message":"no file"}`).
		on("POST /v1/completions", 200, token)
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wake(t.Context(), f.endpoint(), api.Level1, nil); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("wake without weights: %v", err)
	}
}

func TestSGLangAdapters(t *testing.T) {
	f := newFake(t).on("POST /load_lora_adapter", 200, `{"success":true}`).
		on("POST /load_lora_adapter", 400, `{"success":false,"error_message":"LoRA a is already loaded."}`).
		on("POST /load_lora_adapter", 400, `{"success":false,"error_message":"no config"}`).
		on("POST /unload_lora_adapter", 400, `{"success":false,"error_message":"LoRA a is not loaded."}`)
	r := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x", AdapterRoot: "/adapters"})
	for range 2 {
		if err := r.LoadAdapter(t.Context(), f.endpoint(), api.Adapter{Name: "a", Path: "/adapters/a"}); err != nil {
			t.Error(err)
		}
	}
	if err := r.LoadAdapter(t.Context(), f.endpoint(), api.Adapter{Name: "b", Path: "/adapters/b"}); err == nil || !strings.Contains(err.Error(), "no config") {
		t.Errorf("load of a bad one: %v", err)
	}
	for body, want := range map[string]string{
		`{"model":"a","prompt":""}`:      `{"model":"m","prompt":"","lora_path":"a"}`,
		`{"model":"n"}`:                  `{"model":"m"}`,
		`{"model":"b"}`:                  `the model "b" is not here: this function serves "m"`,
		`{"model":"m:a"}`:                `{"model":"m","lora_path":"a"}`,
		`{"model":"m:b"}`:                `the model "m:b" is not here: this function serves "m"`,
		`{"lora_path":"a"}`:              `{"lora_path":"a"}`,
		`{"model":"n","lora_path":"b"}`:  `no adapter "b" is loaded: name one in the field model (GET /v1/models lists them)`,
		`{"lora_path":["a"]}`:            `no adapter ["a"] is loaded: name one in the field model (GET /v1/models lists them)`,
		`{"model":"n","lora_path":null}`: `{"model":"m","lora_path":null}`,
		`{"prompt":"a"}`:                 `{"prompt":"a"}`,
		`[1]`:                            `[1]`,
	} {
		if got := request(t, r, "/v1/completions", body); got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
	if err := r.UnloadAdapter(t.Context(), f.endpoint(), "a"); err != nil {
		t.Error(err)
	}
	if got := request(t, r, "/v1/completions", `{"model":"a"}`); got != `the model "a" is not here: this function serves "m"` {
		t.Errorf("after the unload: %s", got)
	}
	if err := r.LoadAdapter(t.Context(), newFake(t).endpoint(), api.Adapter{Name: "c"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("load by a server without adapters: %v", err)
	}
}

// A server with a key gets it with every call, ours and the clients'. One with a user's own configuration file has none of ours.
func TestSGLangsKey(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, token)
	}))
	defer server.Close()
	r := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Command: []string{program(t, "python3")}})
	if _, err := r.Launch("x"); err != nil {
		t.Fatal(err)
	}
	if err := r.Probe(t.Context(), api.Endpoint(server.URL)); err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, server.URL, nil)
	req.Header.Set("Authorization", "Bearer client")
	resp, err := runtime.WithKey(http.DefaultTransport, r.(runtime.Keyed)).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want := "Bearer " + r.(runtime.Keyed).Key()
	if len(got) != 2 || got[0] != want || got[1] != want || req.Header.Get("Authorization") != "Bearer client" {
		t.Errorf("it was shown %q, want the key alone", got)
	}
	own := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Command: []string{program(t, "python3")}, Args: []string{"--config", "mine.yaml"}})
	if l, err := own.Launch("x"); err != nil || own.(runtime.Keyed).Key() != "" || slices.Index(l.Args, "--config") != len(l.Args)-2 {
		t.Errorf("with a file of the user's: %v, %v", l.Args, err)
	}
}
