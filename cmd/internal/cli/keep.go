package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/disk"
)

func keptPath(name api.FunctionName) (string, error) {
	dir := configFolder()
	if dir == "" {
		return "", errors.New("there is no folder to keep functions in: set XDG_CONFIG_HOME or HOME")
	}
	file := name.Name() + ".yaml"
	if name.Namespace() != api.DefaultNamespace || file == keysFileName {
		file = name.Namespace() + "." + file
	}
	return filepath.Join(dir, file), nil
}

// keepManifest writes for this user alone: an environment has secrets.
func keepManifest(m config.Manifest) error {
	path, err := keptPath(m.Function.Name)
	if err != nil {
		return err
	}
	err = ownFile(path, m.Function.Name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = disk.WriteFile(path, m.YAML, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", m.Function.Name.Short(), err)
	}
	return nil
}

func forgetKept(name api.FunctionName) (bool, error) {
	path, err := keptPath(name)
	if err != nil {
		return false, err
	}
	if err := ownFile(path, name); err != nil {
		return false, fmt.Errorf("forget %s: %w", name.Short(), err)
	}
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ownFile refuses a file with other functions, or that can't be read: it was written by hand.
func ownFile(path string, name api.FunctionName) error {
	functions, err := config.Load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("change %s by hand: %w", path, err)
	case len(functions) == 1 && functions[0].Name == name:
		return nil
	}
	return fmt.Errorf("%s declares other functions too: change it by hand", path)
}
