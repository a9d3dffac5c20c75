package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/pages"
)

// TestTutorialOfTheAPI runs the programs of docs/tutorials/api.md with the official clients. What a program prints is in the next
// block of text behind it.
func TestTutorialOfTheAPI(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/tutorials/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := pages.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	p := newServer(t, "--model", "pico", "--store", "store")
	modules, python := absolute(t, "clients/node_modules"), os.Getenv("ROUSE_PYTHON")
	want, programs := "", 0
	for i := len(page.Blocks) - 1; i >= 0; i-- {
		b := page.Blocks[i]
		if b.Info == "text" {
			want = b.Text
		}
		if b.Info != "python" && b.Info != "js" {
			continue
		}
		programs++
		first, _, _ := strings.Cut(b.Text, "\n")
		name, printed := strings.Fields(first)[1], want
		t.Run(name, func(t *testing.T) {
			program := "node"
			switch _, err := os.Stat(filepath.Join(modules, "openai")); {
			case b.Info == "js" && err != nil:
				absent(t, "the JavaScript clients are not installed: run npm ci in e2e/clients")
			case b.Info == "python" && python == "":
				absent(t, "the Python clients are not named by ROUSE_PYTHON: make python installs them, make e2e names them")
			case b.Info == "python":
				program = filepath.Join(python, "bin", "python")
			}
			dir := t.TempDir()
			text := strings.ReplaceAll(b.Text, "http://127.0.0.1:8080", p.server.url)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, name)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != printed {
				t.Errorf("%v, it prints\n%s\nand the page says\n%s", err, out, printed)
			}
		})
	}
	if programs < 7 {
		t.Errorf("the page has %d programs", programs)
	}
}
