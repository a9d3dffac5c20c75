package runtime_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

func TestLlamaCppLaunch(t *testing.T) {
	server, dir := program(t, "llama-server"), t.TempDir()
	file := write(t, filepath.Join(dir, "x.gguf"), "GGUF")
	write(t, filepath.Join(dir, "mmproj-x.gguf"), "GGUF")
	shards := t.TempDir()
	first := write(t, filepath.Join(shards, "y-00001-of-00002.gguf"), "GGUF")
	second := write(t, filepath.Join(shards, "y-00002-of-00002.gguf"), "GGUF")
	base := []string{"--host", "SOCKET", "--alias", "m", "--metrics", "--slots"}
	for name, tt := range map[string]struct {
		spec  api.Runtime
		model string
		args  []string
	}{
		"file":    {model: file, args: slices.Concat([]string{"--model", file}, base, []string{"--parallel", "4"})},
		"folder":  {model: dir, args: slices.Concat([]string{"--model", file}, base, []string{"--parallel", "4"})},
		"shards":  {model: shards, args: slices.Concat([]string{"--model", first}, base, []string{"--parallel", "4"})},
		"a shard": {model: second, args: slices.Concat([]string{"--model", first}, base, []string{"--parallel", "4"})},
		"its own slots": {model: file, spec: api.Runtime{Args: []string{"-np", "1"}},
			args: slices.Concat([]string{"--model", file}, base, []string{"-np", "1"})},
		"the hub": {spec: api.Runtime{Args: []string{"-hf", "org/x"}}, args: slices.Concat(base, []string{"--parallel", "4", "-hf", "org/x"})},
		"adapters": {model: file, spec: api.Runtime{Adapters: []api.Adapter{{Name: "a", Path: "/a.gguf"}, {Name: "b", Path: "/b.gguf"}}},
			args: slices.Concat([]string{"--model", file}, base, []string{"--parallel", "4", "--lora", "/a.gguf", "--lora", "/b.gguf"})},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Kind, tt.spec.Model, tt.spec.Command = api.RuntimeLlamaCpp, tt.model, []string{server}
			want := runtime.Launch{Path: server, Args: tt.args, Env: []string{"HOME=/h"}, Endpoint: inside}
			if diff := cmp.Diff(want, launched(t, adapter(t, tt.spec), tt.model)); diff != "" {
				t.Errorf("launch (-want +got):\n%s", diff)
			}
		})
	}
	comma := adapter(t, api.Runtime{Kind: api.RuntimeLlamaCpp, Model: file, Command: []string{server}, Adapters: []api.Adapter{{Name: "a", Path: "/a,b.gguf"}}})
	if _, err := comma.Launch(file); err == nil || !strings.Contains(err.Error(), "rename the file") {
		t.Errorf("an adapter with a comma in its path: %v", err)
	}
	empty := t.TempDir()
	for model, want := range map[string]string{empty: "has 0 models", filepath.Join(empty, "none.gguf"): "GGUF file"} {
		r := adapter(t, api.Runtime{Kind: api.RuntimeLlamaCpp, Model: model, Command: []string{server}})
		if _, err := r.Launch(model); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("launch of %s: %v, want %s", model, err, want)
		}
	}
}

func TestLlamaCppAdapters(t *testing.T) {
	r := adapter(t, api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "/x.gguf", Adapters: []api.Adapter{{Name: "a", Path: "/a.gguf"}, {Name: "b", Path: "/b.gguf"}}})
	if got, want := request(t, r, "/v1/completions", `{"model":"b","prompt":"a"}`), `{"model":"b","prompt":"a","lora":[{"id":0,"scale":0},{"id":1,"scale":1}]}`; got != want {
		t.Errorf("request of an adapter: %s, want %s", got, want)
	}
	if got, want := request(t, r, "/v1/completions", `{"model":"m","lora":[{"id":0,"scale":1}]}`), `{"model":"m","lora":[{"id":0,"scale":0},{"id":1,"scale":0}]}`; got != want {
		t.Errorf("request of the model: %s, want %s", got, want)
	}
	if err := r.LoadAdapter(t.Context(), there, api.Adapter{Name: "a"}); err != nil {
		t.Error(err)
	}
	if err := r.LoadAdapter(t.Context(), there, api.Adapter{Name: "c"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("load of another: %v", err)
	}
}
