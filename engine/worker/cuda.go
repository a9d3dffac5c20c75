package worker

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/engine/pico"

	"github.com/rouse-dev/rouse/internal/ggufname"
)

// Without the tests, test_*.py.
//
//go:embed cuda/[^t]*.py
var cudaFiles embed.FS

// cudaCommand unpacks the program and returns its command.
func cudaCommand(python string) ([]string, error) {
	if python == "" {
		python = "python3"
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return nil, fmt.Errorf("the CUDA worker needs Python with torch: %w; name the interpreter with --python", err)
	}
	dir, err := unpackCUDA()
	if err != nil {
		return nil, fmt.Errorf("unpack the CUDA worker: %w", err)
	}
	return []string{path, filepath.Join(dir, "worker.py")}, nil
}

func cudaModel(name string) (string, error) {
	if name != pico.Name {
		return ggufname.Parts(name)[0], nil
	}
	dir, err := unpackCUDA()
	if err != nil {
		return "", fmt.Errorf("unpack the model %s: %w", name, err)
	}
	path := filepath.Join(dir, "pico-q8_0.gguf")
	return path, writeCached(path, pico.GGUF())
}

// unpackCUDA uses a folder of the user's cache named by the program's hash.
func unpackCUDA() (string, error) {
	entries, err := cudaFiles.ReadDir("cuda")
	files, sum := map[string][]byte{}, sha256.New()
	for _, e := range entries {
		data, failed := cudaFiles.ReadFile("cuda/" + e.Name())
		err = errors.Join(err, failed)
		files[e.Name()] = data
		sum.Write(data)
	}
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "rouse", "cudaworker", hex.EncodeToString(sum.Sum(nil))[:16])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for name, data := range files {
		if err := writeCached(filepath.Join(dir, name), data); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Other processes may read what writeCached writes.
func writeCached(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
