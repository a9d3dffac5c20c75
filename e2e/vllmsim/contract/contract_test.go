// Package contract holds Rouse's runtimes and the simulator against one another:
// each runtime starts the simulator as the server that it thinks it is, and goes
// through the life of an instance.
package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/vllmsim"
	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// TestMain is also the servers, under their names.
func TestMain(m *testing.M) {
	if os.Getenv("VLLMSIM_TEST_PROGRAM") != "" {
		os.Exit(vllmsim.Main(os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// instance is a server that a runtime has started.
type instance struct {
	runtime.Runtime
	at   api.Endpoint
	gpus string
	http *http.Client
}

// start links the simulator to a name, launches it with the runtime and waits for a token.
func start(t *testing.T, spec api.Runtime, name string) *instance {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	gpus := filepath.Join(dir, "gpus")
	transport := api.NewTransport(4)
	t.Cleanup(transport.CloseIdleConnections)
	r, err := runtime.New(runtime.Config{
		Spec: spec, Model: "m", Dir: dir, Transport: transport, Instance: "m-0001", Alone: true,
		Env: []string{"PATH=" + dir, "VLLMSIM_TEST_PROGRAM=1", "VLLMSIM_DEVICES=" + gpus, "VLLMSIM_FLAGS=--time-scale 0 --device-memory 80GiB --weights 16GiB"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Launch(spec.Model)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // read after the process has ended
	s := process.Spec{Path: l.Path, Args: l.Args, Env: l.Env, Lines: func(line []byte) { fmt.Fprintf(&log, "%s\n", line) }}
	var child process.Child
	if d, is := r.(runtime.Deployer); is {
		child, err = d.Deploy(s, process.StartChild, process.StartChild)
	} else {
		child, err = process.StartChild(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Stop(0)
		if t.Failed() {
			t.Logf("%s %s\n%s", l.Path, strings.Join(l.Args, " "), log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := runtime.Await(ctx, r, l.Endpoint, nil, nil); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	if k, keyed := r.(runtime.Keyed); keyed {
		client.Transport = runtime.WithKey(transport, k)
	}
	return &instance{r, l.Endpoint, gpus, client}
}

// says sends a request through the runtime's dialect and returns the answer's body.
func (i *instance) says(t *testing.T, model string) string {
	t.Helper()
	const path = "/v1/chat/completions"
	body := jsonfield.Open(fmt.Appendf(nil, `{"model":%q,"temperature":0,"max_tokens":12,"messages":[{"role":"user","content":"hello"}]}`, model))
	if refused := i.Request(path, body); refused != nil {
		t.Fatal(refused)
	}
	resp, err := i.http.Post(i.at.URL(path), "application/json", bytes.NewReader(body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s %v", resp.StatusCode, raw, err)
	}
	_, text, _ := strings.Cut(string(raw), `"content":"`)
	text, _, _ = strings.Cut(text, `"`)
	return text
}

// used returns the instance's memory on its device, in GiB.
func (i *instance) used(t *testing.T) int64 {
	t.Helper()
	devices, err := device.List(i.gpus)
	if err != nil || len(devices) != 1 {
		t.Fatalf("devices %v, %v", devices, err)
	}
	return devices[0].Used() >> 30
}

// sleeps goes down and up again, at each level, and finds the same answers.
func (i *instance) sleeps(t *testing.T, names ...string) {
	t.Helper()
	want, awake := map[string]string{}, i.used(t)
	for _, name := range names {
		want[name] = i.says(t, name)
	}
	for _, level := range []api.Level{api.Level1, api.Level2, api.Level1} {
		if err := i.Sleep(t.Context(), i.at, level); err != nil {
			t.Fatalf("sleep at level %d: %v", level, err)
		}
		if got := i.used(t); got != 0 {
			t.Errorf("asleep at level %d: %d GiB in use", level, got)
		}
		if _, err := i.Wake(t.Context(), i.at, level, nil); err != nil {
			t.Fatalf("wake from level %d: %v", level, err)
		}
		for _, name := range names {
			if got := i.says(t, name); got != want[name] {
				t.Errorf("after level %d %s says %q, before %q", level, name, got, want[name])
			}
		}
		if got := i.used(t); got != awake {
			t.Errorf("awake again: %d GiB, before %d", got, awake)
		}
	}
}

func TestVLLM(t *testing.T) {
	adapters := t.TempDir()
	i := start(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "sim/tiny-8b", AdapterRoot: adapters}, "vllm")
	if err := i.LoadAdapter(t.Context(), i.at, api.Adapter{Name: "sql", Path: adapters}); err != nil {
		t.Fatal(err)
	}
	if got := i.says(t, "sql"); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("the adapter says %q", got)
	}
	i.sleeps(t, "m", "sql")
	s, err := i.Signals(t.Context(), i.at)
	if err != nil || s.Running != 0 || s.BlockTokens != 16 || s.Blocks < 1000 || s.PromptTokens == 0 || s.GeneratedTokens == 0 || s.MaxAdapters != 1 {
		t.Errorf("signals %+v, %v", s, err)
	}
	if err := i.UnloadAdapter(t.Context(), i.at, "sql"); err != nil {
		t.Error(err)
	}
}

func TestSGLang(t *testing.T) {
	i := start(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "sim/tiny-8b", AdapterRoot: "/adapters"}, "python3")
	if err := i.LoadAdapter(t.Context(), i.at, api.Adapter{Name: "sql", Path: "org/sql"}); err != nil {
		t.Fatal(err)
	}
	if got := i.says(t, "sql"); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("the adapter says %q", got)
	}
	i.sleeps(t, "m", "sql")
	if s, err := i.Signals(t.Context(), i.at); err != nil || s.Blocks == 0 || s.GeneratedTokens == 0 {
		t.Errorf("signals %+v, %v", s, err)
	}
}

func TestLlamaServer(t *testing.T) {
	model := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(model, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := start(t, api.Runtime{Kind: api.RuntimeLlamaCpp, Model: model, Adapters: []api.Adapter{{Name: "sql", Path: "/adapters/sql.gguf"}}}, "llama-server")
	base, sql := i.says(t, "m"), i.says(t, "sql")
	if base == sql || !strings.HasPrefix(sql, "sql.gguf: ") {
		t.Errorf("the model says %q, its adapter %q", base, sql)
	}
	if s, err := i.Signals(t.Context(), i.at); err != nil || s.GeneratedTokens == 0 {
		t.Errorf("signals %+v, %v", s, err)
	}
}

func TestRayServe(t *testing.T) {
	i := start(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:deployment"}, "ray")
	if got := i.says(t, "m"); got == "" {
		t.Error("it says nothing")
	}
}
