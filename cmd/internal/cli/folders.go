package cli

import (
	"os"
	"path/filepath"
)

const programName = "rouse"

// keysFileName is in the configuration's folder, where all other files are manifests.
const keysFileName = "keys.yaml"

// configFolder returns $XDG_CONFIG_HOME/rouse, or ~/.config/rouse; empty: there is no home.
func configFolder() string { return userFolder("XDG_CONFIG_HOME", ".config") }

// stateFolder returns $XDG_STATE_HOME/rouse, or ~/.local/state/rouse; empty: there is no home.
func stateFolder() string { return userFolder("XDG_STATE_HOME", ".local/state") }

func userFolder(variable, usual string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) { // the specification ignores relative ones
		return filepath.Join(dir, programName)
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return ""
	}
	return filepath.Join(home, filepath.FromSlash(usual), programName)
}

func shortPath(path string) string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" || home == "/" {
		return path
	}
	if rest, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rest) && rest != "." {
		return filepath.Join("~", rest)
	}
	return path
}
