package functions

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// A file in place of a folder is what nobody can write below, root included.
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
