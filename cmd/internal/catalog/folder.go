package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// Bounds of a folder: how deep it is read, and how much is looked at.
const (
	mostDepth = 8
	mostFiles = 10_000
)

// part is the end of the name of a file that is one of several; the first one stands for all.
var part = lazyregexp.New(`-(\d{5})-of-\d{5}\.gguf$`)

// Folder declares a function for every GGUF file below a folder, named after its file. Files that the engine can't serve, and
// those whose name another one has taken, are left out. The error is that of the folder itself.
func Folder(dir string, gpu func() GPU) (functions []api.Function, left []Skipped, err error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, nil, fmt.Errorf("read the folder of models: %w", err)
	} else if !info.IsDir() {
		return nil, nil, fmt.Errorf("read the folder of models: %s is no folder", dir)
	}
	files, left, err := ggufs(dir)
	if err != nil {
		return nil, nil, err
	}
	taken := map[api.FunctionName]string{}
	for _, path := range files {
		f, err := inFolder(path, dir)
		f = onGPU(f, gpu)
		if other, is := taken[f.Name]; err == nil && is {
			err = fmt.Errorf("%s has taken the name %s: rename one of them", printable(other), f.Name.Short())
		}
		if err != nil {
			left = append(left, Skipped{printable(path), err})
			continue
		}
		taken[f.Name] = path
		functions = append(functions, f)
	}
	return functions, left, nil
}

// inFolder declares the function of one file.
func inFolder(path, dir string) (api.Function, error) {
	if printable(path) != path {
		return api.Function{}, errors.New("its name has control characters")
	}
	if first := part().FindStringSubmatch(path); first != nil {
		return api.Function{}, errors.New("it is a part of a model: the engine takes one file, which llama-gguf-split --merge makes of the parts")
	}
	if _, err := serve.Check(path); err != nil {
		return api.Function{}, reason(err, path)
	}
	f, err := config.ForModel(path, "--models-dir "+dir)
	if err != nil {
		return api.Function{}, errors.New("no function's name can be made from the file's: rename it")
	}
	return f, nil
}

// reason is what is wrong with a file, without its path, which is said already.
func reason(err error, path string) error {
	text := err.Error()
	for _, before := range []string{"open model file " + path + ": ", "open model file: ", "open " + path + ": ", path + " "} {
		text = strings.TrimPrefix(text, before)
	}
	return errors.New(text)
}

// ggufs are the GGUF files below dir, in order. Hidden files and folders are not looked at.
func ggufs(dir string) (files []string, left []Skipped, err error) {
	seen := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > mostFiles {
			return fmt.Errorf("the folder of models %s has more than %d files: name one further down", dir, mostFiles)
		}
		hidden := path != dir && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil && path == dir:
			return fmt.Errorf("read the folder of models: %w", err)
		case err != nil:
			left = append(left, Skipped{printable(path), err})
			return fs.SkipDir
		case hidden && d.IsDir():
			return fs.SkipDir
		case d.IsDir() && strings.Count(strings.TrimPrefix(path, dir), string(filepath.Separator)) > mostDepth:
			left = append(left, Skipped{printable(path), fmt.Errorf("it is more than %d folders down", mostDepth)})
			return fs.SkipDir
		case hidden || d.IsDir() || !strings.EqualFold(filepath.Ext(path), ".gguf"):
			return nil
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(files)
	return files, left, nil
}
