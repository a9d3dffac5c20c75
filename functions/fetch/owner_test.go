package fetch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// TestFolderOfSeveralUsers uses a folder that others can write to.
func TestFolderOfSeveralUsers(t *testing.T) {
	o := newOrigin(t)
	content := random(40, 1000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	cfg := config(t, o.Server)
	check(t, os.Mkdir(cfg.Dir, 0o777))
	check(t, os.Chmod(cfg.Dir, 0o1777))
	c := open(t, cfg)
	if filepath.Dir(c.Dir()) != cfg.Dir || !strings.HasPrefix(filepath.Base(c.Dir()), "user-") {
		t.Fatalf("the cache is %s, want a user's folder in %s", c.Dir(), cfg.Dir)
	}
	holds(t, fetched(t, c, o.URL+"/a.gguf").Path, content)
	check(t, os.Chmod(c.Dir(), 0o777))
	if _, err := fetch.New(cfg); err == nil || !strings.Contains(err.Error(), "set ROUSE_CACHE") {
		t.Errorf("with a user's folder that all may write to, New = %v", err)
	}
	check(t, os.RemoveAll(c.Dir()))
	check(t, os.Symlink(t.TempDir(), c.Dir()))
	if _, err := fetch.New(cfg); err == nil || !strings.Contains(err.Error(), "set ROUSE_CACHE") {
		t.Errorf("with a link as the user's folder, New = %v", err)
	}
}

// TestFilesOfAnotherUser has another user's files in a cache: their content is verified, and their entries are ignored.
func TestFilesOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of another user")
	}
	const other = 12345
	o := newOrigin(t)
	content := random(41, 1000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	cfg := config(t, o.Server)
	c := open(t, cfg)
	ref := o.URL + "/a.gguf"
	fetched(t, c, ref).Release()
	spoil := func(dir string) string {
		t.Helper()
		files, err := os.ReadDir(filepath.Join(c.Dir(), dir))
		check(t, err)
		if len(files) != 1 {
			t.Fatalf("%s has %d files", dir, len(files))
		}
		path := filepath.Join(c.Dir(), dir, files[0].Name())
		check(t, os.Chown(path, other, -1))
		return path
	}
	blob := spoil("blobs/sha256")
	info, err := os.Stat(blob)
	check(t, err)
	check(t, os.Chmod(blob, 0o644))
	check(t, os.WriteFile(blob, random(42, 1000), 0o644))
	check(t, os.Chtimes(blob, info.ModTime(), info.ModTime())) // as if nobody had written to it
	m := fetched(t, c, ref)
	holds(t, m.Path, content)
	m.Release()

	spoil("entries")
	offline := cfg
	offline.Offline = true
	refused(t, open(t, offline), ref, "not in the cache")
	holds(t, fetched(t, c, ref).Path, content)
}
