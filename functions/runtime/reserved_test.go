package runtime

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// real are the lists of the real servers' options and variables, which make pins reads from their sources.
const real = "../../e2e/vllmsim/testdata/real/"

// unlisted are names that are in no such list, with the reason.
var unlisted = map[string]string{
	"vllm --snapshot-config":          "of vLLM 0.33",
	"vllm --sleep-mode-backend":       "of vLLM 0.33",
	"sglang --no-enable-memory-saver": "the adapter's own, which it does not pass on",
}

// lines returns the lines of a file that begin with one of the words, without the word.
func lines(t *testing.T, path string, words ...string) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		word, name, named := strings.Cut(strings.TrimSpace(line), " ")
		if !named {
			word, name = "", word
		}
		if slices.Contains(words, word) && name != "" {
			all[strings.TrimSuffix(name, "=")] = true
		}
	}
	return all
}

// TestEveryOptionIsJudged: each option and variable of each real server is harmless, so that a front door's function may have it
// (config/harmless), or reserved, with advice, or the operator's only (testdata/operator).
func TestEveryOptionIsJudged(t *testing.T) {
	servers := map[string]struct {
		kind     string
		reserved reserved
	}{
		"vllm": {api.RuntimeVLLM, vllmReserved}, "sglang": {api.RuntimeSGLang, sglangReserved}, "llamacpp": {api.RuntimeLlamaCpp, llamaCppReserved},
		"ray": {api.RuntimeRayServe, rayReserved}, "ollama": {api.RuntimeOllama, ollamaReserved},
	}
	lists, err := filepath.Glob(real + "*.txt")
	if err != nil || len(lists) < 4 {
		t.Fatalf("%d lists, %v", len(lists), err)
	}
	strange := map[string]bool{}
	for _, list := range lists {
		name := strings.TrimSuffix(filepath.Base(list), ".txt")
		server, known := servers[name]
		if !known {
			t.Errorf("%s: say here which of its options are reserved", list)
			continue
		}
		understood := lines(t, list, "option", "variable")
		operators, harmless := lines(t, "testdata/operator/"+name+".txt", ""), map[string]bool{}
		if path := "../../config/harmless/" + server.kind + ".txt"; name != "ray" && name != "ollama" {
			harmless = lines(t, path, "")
		}
		for _, one := range slices.Sorted(maps.Keys(understood)) {
			classes := 0
			for _, in := range []bool{operators[one], harmless[one], server.reserved[one] != ""} {
				if in {
					classes++
				}
			}
			if classes == 0 {
				t.Errorf("%s understands %s, which nobody has judged: reserve it in functions/runtime, or write it into testdata/operator/%[1]s.txt or, if it can do no harm from another machine's manifest, into config/harmless", name, one)
			} else if classes > 1 {
				t.Errorf("%s: %s is in %d of reserved, testdata/operator and config/harmless", name, one, classes)
			}
		}
		for _, judged := range []map[string]bool{operators, harmless, keysOf(server.reserved)} {
			for one := range judged {
				if !understood[one] {
					strange[name+" "+one] = true
				}
			}
		}
	}
	for one := range strange {
		if unlisted[one] == "" {
			t.Errorf("%s is judged, and the real server has no such thing", one)
		}
	}
	for one := range unlisted {
		if !strange[one] {
			t.Errorf("%s is in the list by now: remove it from unlisted", one)
		}
	}
}

func keysOf(r reserved) map[string]bool {
	all := map[string]bool{}
	for name := range r {
		all[name] = true
	}
	return all
}

// TestInherited: reserved variables are not inherited either.
func TestInherited(t *testing.T) {
	gguf := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(gguf, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{api.RuntimeVLLM: "VLLM_SERVER_DEV_MODE", api.RuntimeLlamaCpp: "LLAMA_ARG_TOOLS", api.RuntimeOllama: "OLLAMA_HOST"} {
		spec := api.Runtime{Kind: kind, Model: gguf, Command: []string{"/bin/sh"}}
		if kind == api.RuntimeVLLM {
			spec.Args = []string{"--no-enable-sleep-mode"}
		}
		r, err := New(Config{Spec: spec, Model: "m", Dir: t.TempDir(), Env: []string{name + "=inherited", "OTHER=1"}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := r.Launch(gguf)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(l.Env, name+"=inherited") || !slices.Contains(l.Env, "OTHER=1") {
			t.Errorf("%s: the environment is %v", kind, l.Env)
		}
	}
}
