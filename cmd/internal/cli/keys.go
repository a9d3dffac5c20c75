package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

func keysCommand() *cobra.Command {
	open := func(cmd *cobra.Command) (verb.KeysFile, error) {
		path, _ := cmd.Flags().GetString("file")
		if path == "" {
			var err error
			path, err = defaultKeys()
			return defaultFile{verb.KeysPath(path)}, err
		}
		return verb.KeysPath(path), nil
	}
	flags := func(cmd *cobra.Command) {
		cmd.Flags().StringP("file", "f", "", "`file` with the keys (default: ~/.config/rouse/keys.yaml, or in $XDG_CONFIG_HOME/rouse)")
	}
	return shared.Keys(open, flags, func(f verb.KeysFile) string {
		return fmt.Sprintf("Start the server with: rouse up --keys %s", f)
	})
}

// defaultFile is the default file of keys, whose folder is made if need be.
type defaultFile struct{ verb.KeysPath }

func (f defaultFile) Change(ctx context.Context, change func([]byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(f.String()), 0o700); err != nil {
		return fmt.Errorf("make a place for the keys: %w", err)
	}
	return f.KeysPath.Change(ctx, change)
}

func defaultKeys() (string, error) {
	dir := configFolder()
	if dir == "" {
		return "", errors.New("name the file of keys with --file: there is no home folder, and no XDG_CONFIG_HOME")
	}
	return filepath.Join(dir, keysFileName), nil
}
