package functions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// memory is the fallback if no disk is writable: a container's root may be read-only.
const memory = "/dev/shm"

func temporary() (dir string, clean func(), err error) {
	var failed error
	for _, at := range []string{os.TempDir(), memory} {
		dir, clean, err := runtime.TempDir(at, "rouse-")
		if err == nil {
			return dir, clean, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", nil, fmt.Errorf("no folder for the instance could be created: mount an emptyDir at %s, or name another folder with --dir: %w", os.TempDir(), failed)
}

// openCache opens the cache in the given folder, else at the first writable place.
func openCache(cfg fetch.Config, given bool) (*fetch.Cache, error) {
	if given {
		return fetch.New(cfg)
	}
	own := filepath.Join("rouse-"+strconv.Itoa(os.Getuid()), "models")
	var failed error
	for _, dir := range []string{cfg.Dir, filepath.Join(os.TempDir(), own), filepath.Join(memory, own)} {
		if dir == "" {
			continue
		}
		if err := writable(dir); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if failed != nil {
			cfg.Logger.Warn("models are fetched into a temporary folder and may be lost with this container: mount a volume and name it with ROUSE_CACHE", "folder", dir, "error", failed)
		}
		cfg.Dir = dir
		return fetch.New(cfg)
	}
	return nil, fmt.Errorf("there is no place for fetched models: mount a volume, an emptyDir at least, and name it with ROUSE_CACHE or --models: %w", failed)
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
