package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

const (
	mostDepth = 8
	mostFiles = 10_000
)

// Folder declares a function for every GGUF model below a folder, named after its file. Links are followed, to each
// folder once. Models that the engine can't serve, or whose name is taken, are skipped. The error is about the folder
// itself.
func Folder(dir string, gpu func() GPU) (functions []api.Function, left []Skipped, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, nil, fmt.Errorf("read the folder of models: %s is no folder", dir)
	}
	files, left, err := ggufs(dir)
	if err != nil {
		return nil, nil, err
	}
	all := found{left: left}
	for _, path := range files {
		f, err := inFolder(path, dir)
		all.add(printable(path), onGPU(f, gpu), err)
	}
	return all.functions, all.left, nil
}

func inFolder(path, dir string) (api.Function, error) {
	if printable(path) != path {
		return api.Function{}, errors.New("its name has control characters")
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

// Unusable returns why our engine can't serve the file of a function; nil if it can, or is not to.
func Unusable(f api.Function) error {
	if f.Runtime.Kind != api.RuntimeEngine || !filepath.IsAbs(f.Runtime.Model) {
		return nil
	}
	if _, err := serve.Check(f.Runtime.Model); err != nil {
		return reason(err, f.Runtime.Model)
	}
	return nil
}

func reason(err error, path string) error {
	text := err.Error()
	for _, before := range []string{"open model file " + path + ": ", "open model file: ", "open " + path + ": ", path + " "} {
		text = strings.TrimPrefix(text, before)
	}
	return errors.New(text)
}

// ggufs returns the GGUF models below dir, each by its first file.
func ggufs(dir string) (models []string, left []Skipped, err error) {
	var files []string
	err = visible(dir, func(path string, info fs.FileInfo, err error) error {
		gguf := strings.EqualFold(filepath.Ext(path), ".gguf")
		switch {
		case err != nil && !gguf && errors.Is(err, fs.ErrNotExist): // a dangling link
		case err != nil:
			left = append(left, Skipped{printable(path), err})
		case info.IsDir() && strings.Count(strings.TrimPrefix(path, dir), string(filepath.Separator)) > mostDepth:
			left = append(left, Skipped{printable(path), fmt.Errorf("it is more than %d folders down", mostDepth)})
			return fs.SkipDir
		case !info.IsDir() && gguf:
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, left, fmt.Errorf("read the folder of models: %w", err)
	}
	return ggufname.Models(files), left, nil
}

// visible is [disk.Walk] without hidden files and folders. It returns an error about root itself.
func visible(root string, see func(path string, info fs.FileInfo, err error) error) error {
	seen := 0
	return disk.Walk(root, func(path string, info fs.FileInfo, err error) error {
		hidden := path != root && strings.HasPrefix(filepath.Base(path), ".")
		switch seen++; {
		case seen > mostFiles:
			return fmt.Errorf("%s has more than %d files: name a folder further down", root, mostFiles)
		case err != nil && path == root:
			return err
		case hidden && err == nil && info.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		}
		return see(path, info, err)
	})
}
