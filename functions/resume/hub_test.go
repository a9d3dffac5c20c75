package resume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	oneCommit   = "0123456789abcdef0123456789abcdef01234567"
	otherCommit = "89abcdef0123456789abcdef0123456789abcdef"
)

// hub creates a hub cache with two commits of org/name, of which main is the first, and returns its path.
func hub(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"refs/main": oneCommit, "refs/pr/1": otherCommit, "refs/lost": strings.Repeat("a", 40), "refs/broken": "main",
		"snapshots/" + oneCommit + "/generation_config.json":   `{"max_new_tokens":7}`,
		"snapshots/" + otherCommit + "/generation_config.json": `{"presence_penalty":1}`,
	} {
		path := filepath.Join(dir, "models--org--name", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSnapshot finds the files of a model that vLLM knows by name in the place of the hub's own library, and nowhere else.
func TestSnapshot(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("here/name", 0o755); err != nil {
		t.Fatal(err)
	}
	dir := hub(t)
	home := t.TempDir()
	for _, link := range []string{"hub", ".cache/huggingface/hub", "huggingface/hub"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "TRANSFORMERS_CACHE", "VLLM_USE_MODELSCOPE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", "/nowhere")
	t.Setenv("HF_HOME", "/nowhere")
	in := "HF_HUB_CACHE=" + dir
	for name, test := range map[string]struct {
		path string
		args []string
		env  []string
		want string
	}{
		"the cache":            {env: []string{in}, want: oneCommit},
		"its older name":       {env: []string{"HUGGINGFACE_HUB_CACHE=" + dir}, want: oneCommit},
		"below its home":       {env: []string{"HF_HOME=" + home}, want: oneCommit},
		"below a cache":        {env: []string{"HF_HOME=", "XDG_CACHE_HOME=" + home}, want: oneCommit},
		"below the user":       {env: []string{"HF_HOME=", "HOME=" + home}, want: oneCommit},
		"the last one counts":  {env: []string{"HF_HUB_CACHE=/x", in}, want: oneCommit},
		"a branch":             {env: []string{in}, args: []string{"--revision", "pr/1"}, want: otherCommit},
		"a commit":             {env: []string{in}, args: []string{"--revision=" + otherCommit}, want: otherCommit},
		"a commit not there":   {env: []string{in}, args: []string{"--revision=" + strings.Repeat("b", 40)}},
		"a branch not there":   {env: []string{in}, args: []string{"--revision", "dev"}},
		"not fetched":          {env: []string{in}, args: []string{"--revision", "lost"}},
		"a reference to none":  {env: []string{in}, args: []string{"--revision", "broken"}},
		"out of the cache":     {env: []string{in}, args: []string{"--revision", "../../x"}},
		"no cache":             {},
		"a relative cache":     {env: []string{"HF_HUB_CACHE=hub"}},
		"another model":        {env: []string{in}, path: "org/other"},
		"no name":              {env: []string{in}, path: "s3://bucket/name"},
		"a file of the hub":    {env: []string{in}, path: "org/name:Q4_K_M"},
		"a path":               {env: []string{in}, path: "../org"},
		"a folder of the name": {env: []string{in}, path: "here/name"},
		"another hub":          {env: []string{in, "VLLM_USE_MODELSCOPE=True"}},
		"a cache of old":       {env: []string{in, "TRANSFORMERS_CACHE=/x"}},
		"another config":       {env: []string{in}, args: []string{"--hf_config_path", "/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Model{Path: "org/name", Args: test.args, Env: test.env}
			if test.path != "" {
				m.Path = test.path
			}
			got := snapshot(m)
			if (got == "") != (test.want == "") || got != "" && filepath.Base(got) != test.want {
				t.Errorf("got %q, want the commit %q", got, test.want)
			}
		})
	}
}

// TestSnapshotCounts: a commit's defaults are the model's. Another commit is another model, and one that arrives while vLLM runs does
// not count.
func TestSnapshotCounts(t *testing.T) {
	const endless = `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}`
	dir := hub(t)
	m := Model{Name: "n", Path: "org/name", Starts: 1, Env: []string{"HF_HUB_CACHE=" + dir}}
	by := New(Config{Model: func() Model { return m }})
	a, why := qualify(pathChat, []byte(endless))
	if why != "" {
		t.Fatal(why)
	}
	got, why := by.model(a, true)
	if why != "" || got.most != 7 {
		t.Fatalf("%+v, %q, want the commit's limit", got, why)
	}
	if err := os.WriteFile(filepath.Join(dir, "models--org--name/refs/main"), []byte(otherCommit), 0o600); err != nil {
		t.Fatal(err)
	}
	by.seen.looked = time.Time{} // as if it were long ago
	if _, why := by.model(a, true); !strings.Contains(why, "have changed") {
		t.Errorf("after another commit came: %q", why)
	}
	m.Starts++
	if _, why := by.model(a, true); !strings.Contains(why, "penalty") {
		t.Errorf("started with the other commit: %q, want what its generation_config.json says", why)
	}
}
