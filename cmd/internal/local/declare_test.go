package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestNoProgram looks for the program that the adapter starts.
func TestNoProgram(t *testing.T) {
	for _, there := range []string{"ray", "serve"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, there), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		f := api.Function{Runtime: api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm", Env: []string{"PATH=" + dir}}}
		if got, missing := NoProgram(f), there != "ray"; (got != "") != missing || missing && !strings.Contains(got, "program ray ") {
			t.Errorf("with %s: %q", there, got)
		}
		f.Runtime.Endpoint, f.Runtime.Command = "http://127.0.0.1:8000", []string{"of-somebody-else"}
		if got := NoProgram(f); got != "" {
			t.Errorf("attached: %q", got)
		}
	}
}

// TestProjectorTakesMemory: the memory of an engine that is not declared is estimated with its projector, which must be there.
func TestProjectorTakesMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mmproj-x.gguf")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	memory := func(args ...string) (api.Bytes, error) {
		f := api.Function{Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Args: args}}
		err := checkModel(&f)
		return f.Memory.Host, err
	}
	without, err := memory("--sync")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--mmproj", path, "--sync"}, {"--sync", "--mmproj=" + path}} {
		if got, err := memory(args...); err != nil || got < without+1<<20 {
			t.Errorf("%q: %d bytes, %v; %d without a projector", args, got, err, without)
		}
	}
	for _, args := range [][]string{{"--mmproj"}, {"--mmproj", path + "x"}} {
		if _, err := memory(args...); err == nil || !strings.Contains(err.Error(), "its --mmproj can't be read") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
