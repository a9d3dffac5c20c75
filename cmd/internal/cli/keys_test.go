package cli

import (
	"path/filepath"
	"testing"
)

// TestDefaultKeys: the file of keys lies beside the manifests that stay, on every system.
func TestDefaultKeys(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	if got, err := defaultKeys(); err != nil || got != filepath.Join(home, ".config/rouse/keys.yaml") {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("XDG_CONFIG_HOME", "/etc/xdg")
	if got, err := defaultKeys(); err != nil || got != "/etc/xdg/rouse/keys.yaml" {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	if got, err := defaultKeys(); err == nil {
		t.Errorf("without a home the file is %q", got)
	}
}
