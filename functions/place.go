package functions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// memory is a folder in memory that is there where a disk is not: a container's
// root may be read-only.
const memory = "/dev/shm"

// temporary makes a folder at the first place that lets us.
func temporary() (string, error) {
	var failed error
	for _, at := range []string{os.TempDir(), memory} {
		dir, err := os.MkdirTemp(at, "rouse-")
		if err == nil {
			return dir, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("there is no place for a folder of its own: mount an emptyDir at %s, or name another folder with --dir: %w", os.TempDir(), failed)
}

// openCache opens the cache of models in the folder that was given, else at the
// first place that lets us: the user's cache, the temporary folder, memory.
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
			cfg.Logger.Warn("fetched models don't go where they belong and may be lost with this container: mount a volume and name it with ROUSE_CACHE", "folder", dir, "error", failed)
		}
		cfg.Dir = dir
		return fetch.New(cfg)
	}
	return nil, fmt.Errorf("there is no place for fetched models: mount a volume, an emptyDir at least, and name it with ROUSE_CACHE or --models: %w", failed)
}

// writable makes a folder, if need be, and writes to it.
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
