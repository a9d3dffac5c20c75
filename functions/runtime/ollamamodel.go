package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

type origin struct {
	name   string
	store  string  // OLLAMA_MODELS
	recipe *recipe // how to create the model; nil: the store has it
}

type recipe struct {
	from     string            // a model of the store; empty: made of files
	files    map[string]string // by their names for the server
	adapters map[string]string // by their names for the server
	fields   map[string]any    // further ones of the request
}

// ollamaModel resolves a model, as declared or fetched:
//
//  1. a name of a model in one of the stores;
//  2. a folder with manifests/ and blobs/: a store;
//  3. a folder with a Modelfile or one GGUF file: that file;
//  4. a GGUF file, from which a model is created;
//  5. another file: a Modelfile.
//
// name is for a model that the reference does not name; own, which is removed first, is the folder for the store of a created model.
func ollamaModel(model, name string, stores []string, own string) (origin, error) {
	info, err := os.Stat(model)
	if errors.Is(err, fs.ErrNotExist) && !isPath(model) { // 1.
		return inStore(strings.TrimPrefix(model, "ollama://"), stores)
	}
	if err != nil {
		return origin{}, fmt.Errorf("model: want an Ollama name (qwen2.5:0.5b), or the path of a GGUF file, a Modelfile or a folder: %w", err)
	}
	file := model
	if info.IsDir() {
		if isStore(model) { // 2.
			return storeOf(model, name)
		}
		if file, err = fileIn(model); err != nil { // 3.
			return origin{}, err
		}
	}
	if err := os.RemoveAll(own); err != nil {
		return origin{}, fmt.Errorf("model: begin a new store: %w", err)
	}
	gguf, err := IsGGUF(file)
	if err != nil {
		return origin{}, fmt.Errorf("model: %w", err)
	}
	if gguf { // 4.
		return origin{name: name, store: own, recipe: &recipe{files: map[string]string{"model.gguf": file}}}, nil
	}
	made, err := readModelfile(file) // 5.
	if err != nil {
		return origin{}, fmt.Errorf("model %s: %w", file, err)
	}
	if made.from != "" {
		if err := borrow(made.from, stores, own); err != nil {
			return origin{}, fmt.Errorf("model %s: FROM %s: %w", file, made.from, err)
		}
	}
	return origin{name: name, store: own, recipe: made}, nil
}

func madeName(client string) string {
	if validName().MatchString(client) {
		return client
	}
	return "model"
}

var validName = lazyregexp.New(`^([A-Za-z0-9_][\w.-]{0,79}/)?[A-Za-z0-9_][\w.-]{0,79}(:[A-Za-z0-9_][\w.-]{0,79})?$`)

func canonical(name string) string {
	dir, file := manifestPath(name)
	return strings.ToLower(filepath.Join(dir, file))
}

// manifestPath includes the default host, namespace and tag that the name omits.
func manifestPath(name string) (dir, tag string) {
	name, tag = strings.TrimPrefix(name, "https://"), "latest"
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, tag = name[:i], name[i+1:]
	}
	switch strings.Count(name, "/") {
	case 0:
		name = "registry.ollama.ai/library/" + name
	case 1:
		name = "registry.ollama.ai/" + name
	}
	return filepath.FromSlash(name), tag
}

func inStore(name string, stores []string) (origin, error) {
	dir, tag := manifestPath(name)
	if !filepath.IsLocal(filepath.Join(dir, tag)) {
		return origin{}, fmt.Errorf("model %q: want an Ollama name, such as qwen2.5:0.5b", name)
	}
	for _, store := range stores {
		if _, err := os.Stat(filepath.Join(store, "manifests", dir, tag)); err == nil {
			return origin{name: name, store: store}, nil
		}
	}
	return origin{}, fmt.Errorf("model %s is not in %s: pull it (ollama pull %s), set OLLAMA_MODELS to the folder that has it, or set the reference ollama://%s to have it fetched",
		name, strings.Join(stores, " or "), name, name)
}

func isStore(dir string) bool {
	for _, part := range []string{"manifests", "blobs"} {
		if info, err := os.Stat(filepath.Join(dir, part)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// storeOf returns the model of that name in a store, or the only one.
func storeOf(dir, name string) (origin, error) {
	if from, err := inStore(name, []string{dir}); err == nil {
		return from, nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "manifests", "*", "*", "*", "*"))
	if err != nil {
		return origin{}, fmt.Errorf("model %s: %w", dir, err)
	}
	if len(found) != 1 {
		return origin{}, fmt.Errorf("model: the folder %s has %d models and none is %s: set the reference ollama://NAME, or leave one there", dir, len(found), name)
	}
	parts := strings.Split(filepath.ToSlash(found[0]), "/")
	parts = parts[len(parts)-4:]
	return origin{name: strings.Join(parts[:3], "/") + ":" + parts[3], store: dir}, nil
}

func fileIn(dir string) (string, error) {
	if at := filepath.Join(dir, "Modelfile"); checkRegular(at) == nil {
		return at, nil
	}
	return ggufFile(dir)
}

func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	return err
}

// IsGGUF reports whether a file begins as GGUF files do.
func IsGGUF(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes.Equal(magic, []byte("GGUF")), nil
}

// borrow links another store's model, so that models made from it stay out of that store.
func borrow(name string, stores []string, own string) error {
	from, err := inStore(name, stores)
	if err != nil {
		return err
	}
	dir, tag := manifestPath(name)
	raw, err := os.ReadFile(filepath.Join(from.store, "manifests", dir, tag))
	if err != nil {
		return err
	}
	type layer struct {
		Digest string `json:"digest"`
	}
	var manifest struct {
		Config layer   `json:"config"`
		Layers []layer `json:"layers"`
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return fmt.Errorf("read its manifest: %w", err)
	}
	at := filepath.Join(own, "manifests", dir)
	for _, d := range []string{at, filepath.Join(own, "blobs")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	for _, l := range slices.Concat([]layer{manifest.Config}, manifest.Layers) {
		blob, err := blobName(l.Digest)
		if err != nil {
			return err
		}
		if err := link(filepath.Join(from.store, "blobs", blob), filepath.Join(own, "blobs", blob)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(at, tag), raw, 0o600)
}

var digestForm = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

func blobName(digest string) (string, error) {
	if !digestForm().MatchString(digest) {
		return "", fmt.Errorf("its manifest has the digest %q, which is no sha256", digest)
	}
	return strings.Replace(digest, ":", "-", 1), nil
}

// link makes to a hard link or, across file systems, a symbolic one.
func link(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	if from, err = filepath.Abs(from); err != nil {
		return err
	}
	return os.Symlink(from, to)
}
