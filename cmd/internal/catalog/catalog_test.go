package catalog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/pico"
)

// write writes a file with its folders.
func write(t *testing.T, data []byte, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// put puts a model into a store as Ollama does; layers are kinds and contents.
func put(t *testing.T, store, path string, layers map[string]string) {
	t.Helper()
	type layer struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	m := struct {
		SchemaVersion int     `json:"schemaVersion"`
		Config        layer   `json:"config"`
		Layers        []layer `json:"layers"`
	}{SchemaVersion: 2, Config: layer{"application/vnd.docker.container.image.v1+json", "sha256:" + strings.Repeat("0", 64), 2}}
	for kind, content := range layers {
		sum := sha256.Sum256([]byte(content))
		digest := hex.EncodeToString(sum[:])
		write(t, []byte(content), store, "blobs", "sha256-"+digest)
		m.Layers = append(m.Layers, layer{"application/vnd.ollama.image." + kind, "sha256:" + digest, len(content)})
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, raw, store, "manifests", path)
}

// aStore has a model of each kind, and what no model is.
func aStore(t *testing.T) *catalog.Store {
	t.Helper()
	dir := t.TempDir()
	weights := string(pico.GGUF())
	put(t, dir, "registry.ollama.ai/library/pico/latest", map[string]string{"model": weights, "template": "{{ .Prompt }}", "params": `{"temperature":0}`})
	put(t, dir, "registry.ollama.ai/library/qwen2.5/0.5b", map[string]string{"model": weights})
	put(t, dir, "registry.ollama.ai/ann/poet/v1", map[string]string{"model": weights, "system": "You are a poet."})
	put(t, dir, "hf.co/org/name/Q8_0", map[string]string{"model": weights})
	put(t, dir, "registry.ollama.ai/library/strange/latest", map[string]string{"model": "GGUF of another kind"})
	put(t, dir, "registry.ollama.ai/library/remote/cloud", map[string]string{"license": "none"})
	write(t, []byte(`{"layers":[`), dir, "manifests/registry.ollama.ai/library/half/latest")
	write(t, []byte(`{"config":{},"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../../../etc/passwd"}]}`), dir, "manifests/registry.ollama.ai/library/evil/latest")
	write(t, []byte(`{"config":{},"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:`+strings.Repeat("a", 64)+`"}]}`), dir, "manifests/registry.ollama.ai/library/gone/latest")
	write(t, nil, dir, "manifests/registry.ollama.ai/library/bad\x1b[2Jname/latest")
	write(t, nil, dir, "manifests/README")
	return &catalog.Store{Dir: dir}
}

func TestStore(t *testing.T) {
	s := aStore(t)
	models, left := s.Models()
	why := map[string]string{}
	for _, m := range models {
		why[m.Name] = ""
		if m.Engine != nil {
			why[m.Name] = m.Engine.Error()
		}
		if (m.Ignores != "") != (m.Name == "pico:latest") {
			t.Errorf("%s ignores %q", m.Name, m.Ignores)
		}
	}
	if got := why["strange:latest"]; !strings.HasPrefix(got, "has 20 bytes") {
		t.Errorf("strange:latest: the engine can't: %q", got)
	}
	delete(why, "strange:latest")
	want := map[string]string{"pico:latest": "", "qwen2.5:0.5b": "", "hf.co/org/name:Q8_0": "", "ann/poet:v1": "its Modelfile has a system message or examples"}
	if diff := cmp.Diff(want, why); diff != "" {
		t.Errorf("models, and why not by the engine (-want +got):\n%s", diff)
	}
	all := ""
	for _, l := range left {
		all += l.String() + "\n"
	}
	for _, want := range []string{"half:latest is left out: its manifest can't be read", "evil:latest is left out: its manifest has the digest", "gone:latest is left out: its blob sha256:aaaaaaaaaaaa… is not there", "remote:cloud is left out: its manifest names no weights", "README is left out: it lies where no manifest does"} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "\x1b") {
		t.Errorf("a name reaches the terminal:\n%q", all)
	}
}

// TestStoreFunctions: our engine serves what it can from the blob itself; the rest is Ollama's, where that is installed.
func TestStoreFunctions(t *testing.T) {
	s := aStore(t)
	t.Setenv("PATH", t.TempDir())
	functions, left := s.Functions(nil)
	var got []string
	for _, f := range functions {
		if f.Runtime.Kind != api.RuntimeEngine || !strings.HasPrefix(f.Runtime.Model, filepath.Join(s.Dir, "blobs", "sha256-")) {
			t.Errorf("%s runs %s of %s", f.Name, f.Runtime.Kind, f.Runtime.Model)
		}
		got = append(got, f.Name.Name())
	}
	slices.Sort(got)
	if want := []string{"hf-co-org-name-q8-0", "pico", "qwen2-5-0-5b"}; !slices.Equal(got, want) {
		t.Errorf("functions are %q, want %q", got, want)
	}
	if !slices.ContainsFunc(left, func(l catalog.Skipped) bool {
		return l.What == "ann/poet:v1" && strings.Contains(l.Why.Error(), "Ollama is not installed")
	}) {
		t.Errorf("what nothing serves is not said: %v", left)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "ollama"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	functions, _ = s.Functions(nil)
	i := slices.IndexFunc(functions, func(f api.Function) bool { return f.Name.Name() == "ann-poet-v1" })
	if i < 0 {
		t.Fatal("Ollama serves nothing")
	}
	f := functions[i]
	if f.Runtime.Kind != api.RuntimeOllama || f.Runtime.Model != "ann/poet:v1" || !slices.Contains(f.Runtime.Env, "OLLAMA_MODELS="+s.Dir) || !slices.Contains(f.Names(), "ann/poet:v1") {
		t.Errorf("Ollama's function is %+v", f)
	}
}

func TestFind(t *testing.T) {
	s := aStore(t)
	for name, want := range map[string]string{"pico": "pico:latest", "qwen2.5:0.5b": "qwen2.5:0.5b", "ann/poet:v1": "ann/poet:v1", "hf.co/org/name:Q8_0": "hf.co/org/name:Q8_0"} {
		if m, _, err := s.Find(name); err != nil || m.Name != want {
			t.Errorf("%s: found %q, %v", name, m.Name, err)
		}
	}
	for name, want := range map[string][]string{"qwen2.5": {"qwen2.5:0.5b"}, "qwen25:0.5b": {"qwen2.5:0.5b"}, "pica": {"pico:latest"}, "llama": nil} {
		if _, near, err := s.Find(name); !errors.Is(err, fs.ErrNotExist) || !slices.Equal(near, want) {
			t.Errorf("%s: near are %q, %v; want %q", name, near, err, want)
		}
	}
	for _, name := range []string{"../../etc/passwd", "", "a/b/c/d/e", "x:y:z", "a b"} {
		if _, _, err := s.Find(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q is a name: %v", name, err)
		}
	}
}

func TestStoreOf(t *testing.T) {
	s := aStore(t)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".ollama"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.Dir, filepath.Join(home, ".ollama", "models")); err != nil {
		t.Fatal(err)
	}
	for _, env := range []map[string]string{{"OLLAMA_MODELS": s.Dir}, {"HOME": home}} {
		if got := catalog.StoreOf(func(name string) string { return env[name] }); got == nil {
			t.Errorf("with %v there is no store", env)
		}
	}
	if got := catalog.StoreOf(func(name string) string { return map[string]string{"OLLAMA_MODELS": "/nowhere", "HOME": home}[name] }); got != nil {
		t.Errorf("a store that is not there is %v", got)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	gguf := pico.GGUF()
	write(t, gguf, dir, "Chat Model.gguf")
	write(t, gguf, dir, "more/deep/code.GGUF")
	write(t, gguf, dir, "more/chat-model.gguf")
	write(t, gguf, dir, "big-00001-of-00002.gguf")
	write(t, gguf[:len(gguf)/2], dir, "half.gguf")
	write(t, nil, dir, "empty.gguf")
	write(t, gguf, dir, "<script>\x1b[31m.gguf")
	write(t, gguf, dir, ".hidden/x.gguf")
	write(t, []byte("text"), dir, "README.md")
	functions, left, err := catalog.Folder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range functions {
		got[f.Name.Name()], _ = filepath.Rel(dir, f.Runtime.Model)
	}
	if diff := cmp.Diff(map[string]string{"chat-model": "Chat Model.gguf", "code": "more/deep/code.GGUF"}, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	all := ""
	for _, l := range left {
		all += l.String() + "\n"
	}
	for _, want := range []string{"more/chat-model.gguf is left out: " + dir + "/Chat Model.gguf has taken the name chat-model", "half.gguf is left out: ", "empty.gguf is left out: ", "control characters", "big-00001-of-00002.gguf is left out: by its name it is one of 2 files"} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "\x1b") || len(left) != 5 {
		t.Errorf("left out are %d, want 5:\n%q", len(left), all)
	}
	if _, _, err := catalog.Folder(filepath.Join(dir, "README.md"), nil); err == nil {
		t.Error("a file is a folder")
	}
}

// TestFolderOfLinks: links are followed, a model in several files is one, and what lies beside models is none.
func TestFolderOfLinks(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, pico.GGUF(), other, "far.gguf")
	write(t, pico.GGUF(), dir, "real/near.gguf")
	write(t, pico.GGUF(), dir, "mmproj-model-f16.gguf")
	write(t, pico.GGUF(), dir, "near-imatrix.gguf")
	infertest.Split(t, pico.GGUF(), filepath.Join(dir, "real", "ünï Big"), 3)
	if err := os.Remove(infertest.Split(t, pico.GGUF(), filepath.Join(dir, "lost"), 2)[0]); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"0": "real", "far": other, "real/loop": dir, "far2": other, "note": "nowhere", "gone.gguf": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{dir, other} { // also where the folder itself is a link
		if err := os.Symlink(to, filepath.Join(other, filepath.Base(to)+"-link")); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(other, filepath.Base(dir)+"-link")
	functions, left, err := catalog.Folder(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range functions {
		got[f.Name.Name()], _ = filepath.Rel(root, f.Runtime.Model)
	}
	if diff := cmp.Diff(map[string]string{"near": "real/near.gguf", "far": "far/far.gguf", "uni-big": "real/ünï Big-00001-of-00003.gguf"}, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	all := fmt.Sprint(left)
	if len(left) != 2 || !strings.Contains(all, "gone.gguf is left out") || !strings.Contains(all, "lost-00001-of-00002.gguf is left out: no such file or directory (it is file 1 of the model's 2: put all into one folder)") {
		t.Errorf("left out are %s", all)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"config":{"digest":"sha256:00"},"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../x","size":1}]}`))
	f.Add([]byte(`{"config":null,"layers":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &catalog.Store{Dir: t.TempDir()}
		write(t, raw, s.Dir, "manifests/registry.ollama.ai/library/x/latest")
		if models, left := s.Models(); len(models)+len(left) != 1 {
			t.Errorf("%d models and %d that are none", len(models), len(left))
		}
	})
}

// TestAttached: an Ollama that goes on serving is attached to; names that make one function are said.
func TestAttached(t *testing.T) {
	functions, left := catalog.Attached([]string{"qwen2.5:0.5b", "hf.co/org/name:Q8_0", "qwen2-5:0-5b", "\x1b"}, "http://127.0.0.1:11434", catalog.GPU{Is: true, Devices: 1})
	var got []string
	for _, f := range functions {
		got = append(got, fmt.Sprint(f.Name.Name(), " ", f.Runtime.Kind, " ", f.Runtime.Model, " ", f.Runtime.Endpoint, " ", f.Aliases, " ", f.Memory.Devices))
	}
	want := []string{"qwen2-5-0-5b ollama qwen2.5:0.5b http://127.0.0.1:11434 [qwen2.5:0.5b] 1", "hf-co-org-name-q8-0 ollama hf.co/org/name:Q8_0 http://127.0.0.1:11434 [hf.co/org/name:Q8_0] 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	if all := fmt.Sprint(left); len(left) != 2 || !strings.Contains(all, "qwen2-5:0-5b is left out: qwen2.5:0.5b has taken the name") || strings.Contains(all, "\x1b") {
		t.Errorf("left out are %q", all)
	}
}
