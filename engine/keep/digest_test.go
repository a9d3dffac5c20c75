package keep_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/keep"
)

// TestModel checks that a file's digest is computed once, remembered until the file changes in any way, and not
// computed for a file that is changing.
func TestModel(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "m.gguf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := func() *keep.Model {
		t.Helper()
		m, err := keep.OpenModel(path, dir)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	write("weights")
	m := look()
	if _, ok := m.Known(); ok || !m.Same() {
		t.Errorf("before anything was read its digest is known (%v), or it is another file (%v)", ok, !m.Same())
	}
	if sum, err := m.Digest(t.Context()); err != nil || sum != sha256.Sum256([]byte("weights")) {
		t.Fatalf("digest: %x, %v", sum, err)
	}
	if sum, ok := look().Known(); !ok || sum != sha256.Sum256([]byte("weights")) {
		t.Errorf("the next time: %x, known %v", sum, ok)
	}
	for _, test := range []struct {
		what   string
		change func()
	}{ // in this order: the system's clock of files is coarse, and the first change comes late enough
		{"other weights of the same size and time", func() {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write("WEIGHTS")
			if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
				t.Fatal(err)
			}
		}},
		{"another file of the name", func() {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			write("weights")
		}},
	} {
		m, what := look(), test.what
		test.change()
		if _, ok := look().Known(); ok || m.Same() {
			t.Errorf("%s: the digest is known (%v), it is the same file (%v)", what, ok, m.Same())
		}
		if _, err := m.Digest(t.Context()); err == nil {
			t.Errorf("%s: a digest of what was loaded", what)
		}
	}
	remembered, err := filepath.Glob(filepath.Join(dir, "conversations", "*.digest"))
	if err != nil || len(remembered) != 1 {
		t.Fatalf("%q, %v: want one file", remembered, err)
	}
	m = look()
	if err := os.WriteFile(remembered[0], bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Known(); ok {
		t.Error("a spoiled file remembers a digest")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the server ends")
	cancel(gone)
	if _, err := m.Digest(ctx); !errors.Is(err, gone) {
		t.Errorf("a digest that nobody waits for: %v", err)
	}
	if _, err := keep.OpenModel(path+".none", dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// The digest expires as the other files do.
	if _, err := m.Digest(t.Context()); err != nil {
		t.Fatal(err)
	}
	older(t, dir, 2*time.Hour)
	open(t, keep.Config{Dir: dir, Limit: 1 << 20, Age: time.Hour})
	if _, ok := look().Known(); ok {
		t.Error("a digest that was not used for long is there")
	}
}

// TestModelOfSeveralFiles checks that the digest is of all files of a split model, whichever is named.
func TestModelOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "m-00001-of-00002.gguf"), filepath.Join(dir, "m-00002-of-00002.gguf")
	for path, text := range map[string]string{first: "one", second: "two"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := keep.OpenModel(second, filepath.Join(dir, "digests"))
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := m.Digest(t.Context()); err != nil || sum != sha256.Sum256([]byte("onetwo")) {
		t.Errorf("digest %x, %v", sum, err)
	}
	if err := os.Truncate(second, 1); err != nil || m.Same() {
		t.Errorf("its second file was changed (%v), and it is the same model", err)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if _, err := keep.OpenModel(second, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its first file is missing: got %v", err)
	}
}
