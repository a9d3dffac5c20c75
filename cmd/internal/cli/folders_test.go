package cli

import (
	"testing"
)

func TestFolders(t *testing.T) {
	for _, tt := range []struct{ home, config, state, wantConfig, wantState string }{
		{"/home/ann", "", "", "/home/ann/.config/rouse", "/home/ann/.local/state/rouse"},
		{"/home/ann", "/etc", "/var/lib", "/etc/rouse", "/var/lib/rouse"},
		{"/home/ann", "relative", "../state", "/home/ann/.config/rouse", "/home/ann/.local/state/rouse"},
		{"", "", "", "", ""},
		{"", "/etc", "", "/etc/rouse", ""},
	} {
		t.Setenv("HOME", tt.home)
		t.Setenv("XDG_CONFIG_HOME", tt.config)
		t.Setenv("XDG_STATE_HOME", tt.state)
		if got := configFolder(); got != tt.wantConfig {
			t.Errorf("%+v: configuration lies in %q", tt, got)
		}
		if got := stateFolder(); got != tt.wantState {
			t.Errorf("%+v: state lies in %q", tt, got)
		}
	}
}

func TestShort(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	for path, want := range map[string]string{"/home/ann/.config/rouse": "~/.config/rouse", "/home/anna/x": "/home/anna/x", "/home/ann": "/home/ann", "/srv": "/srv"} {
		if got := shortPath(path); got != want {
			t.Errorf("Short(%q) = %q, want %q", path, got, want)
		}
	}
}
