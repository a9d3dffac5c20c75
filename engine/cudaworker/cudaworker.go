// Package cudaworker carries the worker for CUDA devices, which is a Python program, inside this one: it is unpacked into the
// user's cache folder when it is wanted, and speaks the frames of package wire like every worker.
//
// The files beside this one are the program. worker.py has the loop, steps.py what a batch becomes, holder.py what it holds and how it sleeps, shapes.py the families of models, model.py the
// forward pass in torch, ranks.py how several processes compute one model, attention.py and, in Triton, paged.py attention, sampling.py the choice of tokens, adapters.py LoRA, blocks.py what outlives a sleep, gguf.py and wire.py the formats. test_*.py run with
// `python3 -m unittest` in their folder.
package cudaworker

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/engine/pico"
)

//go:embed adapters.py attention.py blocks.py gguf.py holder.py model.py paged.py ranks.py sampling.py shapes.py steps.py wire.py worker.py
var program embed.FS

// Command unpacks the program and returns the command that runs it with file descriptor 3: python, or "python3" if that is
// empty, and its arguments. It fails where there is no such interpreter.
func Command(python string) ([]string, error) {
	if python == "" {
		python = "python3"
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return nil, fmt.Errorf("the CUDA worker needs Python with torch: %w; name the interpreter with --python", err)
	}
	dir, err := unpack()
	if err != nil {
		return nil, fmt.Errorf("unpack the CUDA worker: %w", err)
	}
	return []string{path, filepath.Join(dir, "worker.py")}, nil
}

// Model is the path of a model that the worker can open: pico, which is in this program, is unpacked too.
func Model(name string) (string, error) {
	if name != pico.Name {
		return name, nil
	}
	dir, err := unpack()
	if err != nil {
		return "", fmt.Errorf("unpack the model %s: %w", name, err)
	}
	path := filepath.Join(dir, "pico-q8_0.gguf")
	return path, write(path, pico.GGUF())
}

// unpack writes the program into a folder that is named after its contents.
func unpack() (string, error) {
	files, sum := map[string][]byte{}, sha256.New()
	err := fs.WalkDir(program, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := program.ReadFile(path)
		files[path] = data
		sum.Write(data)
		return err
	})
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
		if err := write(filepath.Join(dir, name), data); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// write makes a file, unless it is there with the same contents. Others may read it meanwhile.
func write(path string, data []byte) error {
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
