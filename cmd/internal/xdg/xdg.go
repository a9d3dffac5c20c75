// Package xdg returns the folders of a user's files of Rouse, by the XDG base directory specification: kept configuration, and
// state that is useful but safe to delete. It does not access the disk, and is safe for concurrent use.
//
// Fetched files are in the user's cache (functions/fetch), and sockets in the runtime folder (cmd/internal/local).
package xdg

import (
	"os"
	"path/filepath"
)

// program is the name of the folders.
const program = "rouse"

// Keys is the name of the file of clients' keys in the configuration's folder, where all other files are manifests.
const Keys = "keys.yaml"

// Config returns the folder of kept functions: $XDG_CONFIG_HOME/rouse, or ~/.config/rouse. Empty: the user has no home.
func Config() string { return folder("XDG_CONFIG_HOME", ".config") }

// State returns the folder of learned and typed data: $XDG_STATE_HOME/rouse, or ~/.local/state/rouse. Empty: the user has no
// home.
func State() string { return folder("XDG_STATE_HOME", ".local/state") }

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

// Short returns a path for display: ~ stands for the home folder.
func Short(path string) string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" || home == "/" {
		return path
	}
	if rest, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rest) && rest != "." {
		return filepath.Join("~", rest)
	}
	return path
}
