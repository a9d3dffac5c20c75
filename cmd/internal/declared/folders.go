package declared

import (
	"os"
	"path/filepath"
)

// program is the name of the folders.
const program = "rouse"

// KeysFile is the name of the file of clients' keys in the configuration's folder, where all other files are manifests.
const KeysFile = "keys.yaml"

// ConfigFolder returns the folder of kept functions: $XDG_CONFIG_HOME/rouse, or ~/.config/rouse. Empty: the user has no home.
func ConfigFolder() string { return folder("XDG_CONFIG_HOME", ".config") }

// StateFolder returns the folder of learned and typed data: $XDG_STATE_HOME/rouse, or ~/.local/state/rouse. Empty: the user has no
// home.
func StateFolder() string { return folder("XDG_STATE_HOME", ".local/state") }

func folder(variable, usual string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) { // the specification ignores relative ones
		return filepath.Join(dir, program)
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return ""
	}
	return filepath.Join(home, filepath.FromSlash(usual), program)
}

// ShortPath returns a path for display: ~ stands for the home folder.
func ShortPath(path string) string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" || home == "/" {
		return path
	}
	if rest, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rest) && rest != "." {
		return filepath.Join("~", rest)
	}
	return path
}
