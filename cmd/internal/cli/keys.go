package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/internal/disk"
)

func keysCommand() *cobra.Command {
	open := func(cmd *cobra.Command) (verb.KeysFile, error) {
		path, _ := cmd.Flags().GetString("file")
		if path == "" {
			var err error
			if path, err = defaultKeys(); err != nil {
				return nil, err
			}
		}
		return keysFile(path), nil
	}
	flags := func(cmd *cobra.Command) {
		cmd.Flags().StringP("file", "f", "", "`file` with the keys (default: ~/.config/rouse/keys.yaml, or in $XDG_CONFIG_HOME/rouse)")
	}
	return shared.Keys(open, flags, func(f verb.KeysFile) string {
		return fmt.Sprintf("Start the server with: rouse up --keys %s", f)
	})
}

// defaultKeys returns the default file of keys.
func defaultKeys() (string, error) {
	dir := configFolder()
	if dir == "" {
		return "", errors.New("name the file of keys with --file: there is no home folder, and no XDG_CONFIG_HOME")
	}
	return filepath.Join(dir, keysFileName), nil
}

// keysFile is a path.
type keysFile string

func (f keysFile) String() string { return string(f) }

// Read implements verb.KeysFile.
func (f keysFile) Read(context.Context) ([]byte, error) {
	raw, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	return raw, nil
}

// Change implements verb.KeysFile. Concurrent changes of the file wait.
func (f keysFile) Change(ctx context.Context, change func([]byte) ([]byte, error)) error {
	path := string(f)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make a place for the keys: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("change the keys: %w", err)
	}
	defer lock.Close() // unlocks it
	if err := disk.WaitLock(lock, disk.Exclusive); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	raw, err := f.Read(ctx)
	if err != nil {
		return err
	}
	changed, err := change(raw)
	if err != nil {
		return err
	}
	return replace(path, changed)
}

// replace atomically writes a file that only its owner can read.
func replace(path string, content []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := disk.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	return nil
}
