// Package xdg says where a user keeps what Rouse reads and writes, by the XDG base directory specification: configuration that
// stays, and state that helps and is safe to delete. It touches no disk, and is safe for many goroutines.
//
// What was fetched lies in the user's cache (functions/fetch), and sockets in the runtime folder (cmd/internal/local).
package xdg

import (
	"os"
	"path/filepath"
)

// program names the folders.
const program = "rouse"

// Keys is the name of the file of clients' keys in the folder of the configuration, where all else are manifests.
const Keys = "keys.yaml"

// Config is the folder of the functions that stay: $XDG_CONFIG_HOME/rouse, or ~/.config/rouse. Empty: the user has no home.
func Config() string { return folder("XDG_CONFIG_HOME", ".config") }

// State is the folder of what was learned and typed: $XDG_STATE_HOME/rouse, or ~/.local/state/rouse. Empty: the user has no home.
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

// Short is a path as people read it: ~ stands for the home folder.
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
