package main

import (
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// Models is the folder in which generated models are kept.
func Models() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "rouse", "bench-models")
}

// Model generates a model of random weights in a folder, unless it is there, and returns its path. A small one has few of them.
func Model(folder, name string, spec infertest.Spec, small bool) (string, error) {
	path := filepath.Join(folder, name+".gguf")
	if small {
		spec, path = spec.Small(), filepath.Join(folder, "small", name+".gguf")
	}
	return path, infertest.Ensure(path, spec)
}
