package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/cli.md")

// TestCommandsAreDocumented keeps docs/cli.md equal to what the commands say.
func TestCommandsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli.md"
	t.Setenv("HOME", "/home/you") // defaults name folders below it
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	if *update {
		if err := run([]string{"--markdown", path}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `make keys`", err)
	}
	if diff := cmp.Diff(page(programs()), string(got)); diff != "" {
		t.Errorf("docs/cli.md is out of date, run `make keys` (-want +got):\n%s", diff)
	}
}

// TestManPages has a page for each command, with its flags, the same twice.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := run([]string{"--man", dir, "--version", "v1.2.3"}); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := os.ReadDir(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		a, _ := os.ReadFile(filepath.Join(one, p.Name()))
		b, _ := os.ReadFile(filepath.Join(two, p.Name()))
		if len(a) == 0 || string(a) != string(b) {
			t.Errorf("%s is not the same twice", p.Name())
		}
	}
	for name, want := range map[string]string{"rouse.1": "v1.2.3", "rouse-up.1": "listen", "kn-rouse-why.1": "kn rouse why"} {
		text, err := os.ReadFile(filepath.Join(one, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q: %v", name, want, err)
		}
	}
}
