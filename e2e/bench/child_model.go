package main

import (
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

func Models() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "rouse", "bench-models")
}

func Model(folder, name string, spec infertest.Spec, small bool) (string, error) {
	path := filepath.Join(folder, name+".gguf")
	if small {
		spec, path = spec.Small(), filepath.Join(folder, "small", name+".gguf")
	}
	return path, infertest.Ensure(path, spec)
}
