package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rouse-dev/rouse/internal/disk"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, want := range []string{"first", "2nd"} {
		if err := disk.WriteFile(path, []byte(want), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(got) != want || info.Mode() != 0o640 {
			t.Errorf("the file has %q, %v (%v, %v), want %q", got, info, err, statErr, want)
		}
	}
	folder := filepath.Join(dir, "folder", "x")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile(filepath.Dir(folder), []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%d entries are left (%v), want the file and the folder", len(entries), err)
	}
}
