package functions

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// blocked returns a file in place of a folder: nobody can write below it, not even root.
func blocked(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(file, "below")
}

func TestTheCacheIsWhereOneMayWrite(t *testing.T) {
	var log bytes.Buffer
	cfg := fetch.Config{Dir: filepath.Join(t.TempDir(), "mine"), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if c, err := openCache(cfg, false); err != nil || c.Dir() != cfg.Dir || log.Len() > 0 {
		t.Errorf("cache at %v, %v; log %q", c, err, &log)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	cfg.Dir = blocked(t)
	if c, err := openCache(cfg, false); err != nil || !strings.HasPrefix(c.Dir(), temp) || !strings.Contains(log.String(), "ROUSE_CACHE") {
		t.Errorf("cache at %v, %v; log %q", c, err, &log)
	}
	if c, err := openCache(cfg, true); err == nil {
		t.Errorf("cache at %s in spite of the folder that was given", c.Dir())
	}
}

func TestATemporaryFolder(t *testing.T) {
	t.Setenv("TMPDIR", blocked(t))
	cfg := Config{Env: []string{"A=1"}}
	clean, err := prepare(&cfg)
	if err != nil {
		if !strings.Contains(err.Error(), "emptyDir") {
			t.Errorf("error %v, want one that says what to mount", err)
		}
		return // this machine has no memory to write to
	}
	if !strings.HasPrefix(cfg.Dir, memory) || cfg.Env[1] != "TMPDIR="+cfg.Dir {
		t.Errorf("folder %s, environment %q", cfg.Dir, cfg.Env)
	}
	clean()
	if _, err := os.Stat(cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// The next instance removes the folder of a killed one, and nothing else.
func TestFoldersThatWereLeft(t *testing.T) {
	at, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", at)
	mine, clean, err := temporary()
	if err != nil {
		t.Fatal(err)
	}
	folder := func(name string, mode os.FileMode, files ...string) string {
		t.Helper()
		dir := filepath.Join(at, name)
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	left := folder("rouse-1", 0o700, ".lock", "engine.sock")
	kept := []string{
		mine,
		folder("rouse-0", 0o700, "8080.lock"),    // of "rouse up"
		folder("rouse-2", 0o755, ".lock"),        // readable by others
		folder("other", 0o700, ".lock"),          // not ours
		filepath.Join(elsewhere, ".lock"),        // behind a link
		filepath.Join(elsewhere, "what matters"), // likewise
	}
	for _, f := range kept[4:] {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(at, "rouse-3")), os.Symlink(kept[4], filepath.Join(folder("rouse-4", 0o700), ".lock"))); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, filepath.Join(at, "rouse-3"), filepath.Join(at, "rouse-4"))

	other, cleanOther, err := temporary()
	if err != nil || other == mine || filepath.Dir(other) != at {
		t.Fatalf("a second folder: %s, %v", other, err)
	}
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
	clean()
	cleanOther()
	for _, path := range []string{mine, other} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is not removed by who made it: %v", path, err)
		}
	}
	if hidden, _ := filepath.Glob(filepath.Join(at, ".rouse-*")); len(hidden) > 0 {
		t.Errorf("left: %v", hidden)
	}
}
