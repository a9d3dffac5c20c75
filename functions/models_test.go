package functions

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestModelsAtOnce fetches a model while adapters are registered and the instance ends: nothing is held afterwards.
func TestModelsAtOnce(t *testing.T) {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer files.Close()
	m, err := newModels(Config{
		Function: api.Function{Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: files.URL + "/model"}}, Models: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := m.adapter(t.Context(), files.URL+"/"+strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := m.prepare(t.Context(), func(float64) {}); err != nil {
		t.Error(err)
	}
	all.Wait()
	m.release()
	if _, err := m.adapter(t.Context(), files.URL+"/late"); err == nil {
		t.Error("an instance that has ended holds a model")
	}
	cache, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	list, err := cache.List(t.Context())
	if err != nil || len(list) != 10 {
		t.Fatalf("the cache has %v, %v, want the model and 9 adapters", list, err)
	}
	for _, e := range list {
		if e.InUse {
			t.Errorf("%s is held after the end", e.Ref)
		}
	}
}

// TestTilesPlace: repacked weights lie in the cache of models if its place is configured. Only instances with the same cache share them;
// another user's instances have their own folder.
func TestTilesPlace(t *testing.T) {
	dir, theirs := t.TempDir(), t.TempDir()
	if err := os.Chmod(theirs, 0o777); err != nil { // #nosec G302 -- what is tested
		t.Fatal(err)
	}
	own := filepath.Join(theirs, "user-"+strconv.Itoa(os.Getuid()), "tiles")
	for name, c := range map[string]struct {
		cfg  Config
		kind string
		want string
	}{
		"by flag":           {Config{Models: dir}, api.RuntimeEngine, filepath.Join(dir, "tiles")},
		"by environment":    {Config{Env: []string{"ROUSE_CACHE=" + dir}}, api.RuntimeEngine, filepath.Join(dir, "tiles")},
		"others write":      {Config{Models: theirs}, api.RuntimeEngine, own},
		"nowhere":           {Config{Env: []string{"ROUSE_CACHE="}}, api.RuntimeEngine, ""},
		"no place":          {Config{Models: "/dev/null/x"}, api.RuntimeEngine, ""},
		"another's weights": {Config{Models: dir}, api.RuntimeVLLM, ""},
	} {
		c.cfg.Function.Runtime = api.Runtime{Kind: c.kind, Model: "/models/m.gguf"}
		m, err := newModels(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.tiles(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestCompiled: what a server compiles is kept in the cache of models if its place is configured, each function's apart.
func TestCompiled(t *testing.T) {
	dir := t.TempDir()
	var all []*models
	for _, c := range []struct {
		kind, models string
		want         int
	}{{api.RuntimeVLLM, dir, 4}, {api.RuntimeSGLang, dir, 4}, {api.RuntimeCommand, dir, 4}, {api.RuntimeEngine, dir, 0}, {api.RuntimeVLLM, "", 0}} {
		m, err := newModels(Config{Function: api.Function{Runtime: api.Runtime{Kind: c.kind}}, Models: c.models})
		if err != nil {
			t.Fatal(err)
		}
		got := m.compiled(t.Context(), "team/f")
		if len(got) != c.want {
			t.Errorf("%s in %q: %q, want %d variables", c.kind, c.models, got, c.want)
		}
		if want := "VLLM_CACHE_ROOT=" + filepath.Join(dir, "compiled", "team.f", "vllm_cache_root"); c.want > 0 && got[0] != want {
			t.Errorf("%s: %q, want %q", c.kind, got[0], want)
		}
		if c.want > 0 {
			all = append(all, m)
		}
	}
	if m, err := newModels(Config{Function: api.Function{Runtime: api.Runtime{Kind: api.RuntimeVLLM, Endpoint: "http://127.0.0.1:1"}}, Models: dir}); err != nil || m.compiled(t.Context(), "f") != nil {
		t.Errorf("a server that others start: %v", err)
	}
	for k, m := range all { // the last instance that uses it holds it
		cache, err := m.open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.Remove(t.Context(), "compiled/team.f"); err == nil {
			t.Errorf("the folder is removed while %d instances use it", len(all)-k)
		}
		m.release()
		if k == len(all)-1 {
			if _, err := cache.Remove(t.Context(), "compiled/team.f"); err != nil {
				t.Error(err)
			}
		}
	}
}
