package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rouse-dev/rouse/e2e/pages"
)

var update = flag.Bool("update", false, "write what the commands of documents print into them")

// TestDocuments runs the commands of the README and of the pages of docs as a reader does, and compares their output
// with the page. Each page has an empty folder, a home and a network of its own. -update writes the output to the page.
// Package pages defines which differences count, and how blocks are marked that need more than this machine has.
func TestDocuments(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	files, err := pages.Files("..", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) {
			if err := f.Check(newReader(t), false); err != nil {
				t.Error(err)
			}
		})
	}
	if len(files) < 12 {
		t.Errorf("%d pages have commands that are run: the test looks in the wrong place", len(files))
	}
}

// newReader starts a shell in an empty folder. It ends with the test, and so do the processes started in it.
func newReader(t *testing.T) *pages.Shell {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(p.dir, "w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "TERM=xterm", "COLUMNS=100", "NO_COLOR=1", "PICO="+absolute(t, "../engine/pico/pico-q8_0.gguf"), "DOCS="+absolute(t, "../docs"))
	s, err := pages.Open(pages.Config{Dir: dir, Home: p.dir, Env: append(env, p.env()...), Alone: true, Patience: 2 * patience, Update: *update})
	if err != nil {
		t.Skipf("no network of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
