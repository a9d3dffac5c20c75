// Package cudaworker embeds the worker for CUDA devices, which is a Python program. It is unpacked into the
// user's cache folder on demand, and speaks the protocol of package worker like every worker.
//
// The program is the Python files beside this one. worker.py has the loop, steps.py prepares batches, holder.py holds the
// model and puts it to sleep, shapes.py describes the families of models. model.py is the forward pass in torch, ranks.py
// runs it in several processes, attention.py is attention and paged.py the same in Triton. sampling.py chooses tokens,
// adapters.py is LoRA, blocks.py keeps cache blocks through a sleep, gguf.py and wire.py read the formats. test_*.py run
// with `python3 -m unittest` in their folder.
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

	"github.com/rouse-dev/rouse/internal/ggufname"
)

//go:embed adapters.py attention.py blocks.py gguf.py holder.py model.py paged.py ranks.py sampling.py shapes.py steps.py wire.py worker.py
var program embed.FS

// Command unpacks the program and returns the command that runs it with file descriptor 3: python, or "python3" if
// that is empty, and its arguments. It fails if there is no such interpreter.
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

// Model returns the path of a model that the worker can open. For pico, which is embedded, it unpacks the model.
func Model(name string) (string, error) {
	if name != pico.Name {
		return ggufname.Parts(name)[0], nil
	}
	dir, err := unpack()
	if err != nil {
		return "", fmt.Errorf("unpack the model %s: %w", name, err)
	}
	path := filepath.Join(dir, "pico-q8_0.gguf")
	return path, write(path, pico.GGUF())
}

// unpack writes the program into a folder named after a hash of its contents.
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

// write writes a file, unless it exists with the same contents. Other processes may read it meanwhile.
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
