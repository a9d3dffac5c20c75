package resume

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

var repository = lazyregexp.New(`^[\w-][\w.-]*(/[\w-][\w.-]*)?$`)

var commit = lazyregexp.New(`^[0-9a-f]{40}$`)

// Options and variables of vLLM that change the meaning of a model's name, or the place of its files.
var (
	elsewhere         = []string{"--hf-config-path", "--config-format", "--hf-overrides"}
	elsewhereVariable = []string{"VLLM_USE_MODELSCOPE", "TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE"}
)

// snapshot returns the folder with vLLM's files of a model that it knows by name: the commit's folder in the hub's cache
// (huggingface_hub, "Understand caching"). Empty: unknown.
func snapshot(known Model) string {
	set := slices.Concat(os.Environ(), known.Env)
	env := func(name string) string { return process.Variable(set, name) }
	if !repository().MatchString(known.Path) || firstOf(known.Args, elsewhere) != "" {
		return ""
	}
	for _, name := range elsewhereVariable {
		if env(name) != "" {
			return ""
		}
	}
	if _, err := os.Lstat(known.Path); err == nil { // vLLM prefers a folder of that name to the hub
		return ""
	}
	cache := cmp.Or(env("XDG_CACHE_HOME"), filepath.Join(env("HOME"), ".cache"))
	home := cmp.Or(env("HF_HOME"), filepath.Join(cache, "huggingface"))
	hub := cmp.Or(env("HF_HUB_CACHE"), env("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
	if !filepath.IsAbs(hub) {
		return ""
	}
	root := filepath.Join(hub, "models--"+strings.ReplaceAll(known.Path, "/", "--"))
	revision := cmp.Or(option(known.Args, "--revision"), "main")
	if !commit().MatchString(revision) {
		if !filepath.IsLocal(revision) {
			return ""
		}
		raw, err := os.ReadFile(filepath.Join(root, "refs", revision))
		if err != nil || !commit().MatchString(string(raw)) {
			return ""
		}
		revision = string(raw)
	}
	folder := filepath.Join(root, "snapshots", revision)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return ""
	}
	return folder
}

// option returns the last value, in either spelling.
func option(args []string, name string) (last string) {
	for _, last = range runtime.ValuesOf(args, name) { // the last one counts
	}
	return last
}
