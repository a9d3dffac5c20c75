package ggufname_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/internal/ggufname"
)

func TestModels(t *testing.T) {
	names := []string{
		"README.md", "m.Q4_K_M.gguf", "mmproj-F16.gguf", "m.mmproj-Q8_0.gguf", "m-imatrix.gguf", "imatrix_unsloth.gguf",
		"BF16/m-00002-of-00003.gguf", "BF16/m-00001-of-00003.gguf", "BF16/m-00003-of-00003.gguf", "Q8_0/m-00002-of-00002.GGUF", "odd-00004-of-00003.gguf",
	}
	want := []string{"BF16/m-00001-of-00003.gguf", "Q8_0/m-00001-of-00002.GGUF", "m.Q4_K_M.gguf", "odd-00004-of-00003.gguf"}
	if diff := cmp.Diff(want, ggufname.Models(names)); diff != "" {
		t.Error(diff)
	}
	if err := ggufname.Missing(want[0], names); err != nil {
		t.Error(err)
	}
	if err := ggufname.Missing(want[1], names); err == nil || !strings.Contains(err.Error(), "m-00001-of-00002.GGUF is missing") {
		t.Errorf("got %v", err)
	}
	for name, base := range map[string]string{"a/m-00001-of-00003.gguf": "m", "x.GGUF": "x", "x": "x", "a-00009-of-00003.gguf": "a-00009-of-00003"} {
		if got := ggufname.Base(name); got != base {
			t.Errorf("%s: got %s, want %s", name, got, base)
		}
	}
}

func TestSize(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"m-00001-of-00002.gguf": "1", "m-00002-of-00002.gguf": "23", "h-00001-of-00002.gguf": "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := ggufname.Size(filepath.Join(dir, "m-00001-of-00002.gguf")); err != nil || size != 3 {
		t.Errorf("got %d, %v", size, err)
	}
	if _, err := ggufname.Size(filepath.Join(dir, "h-00001-of-00002.gguf")); err == nil || !strings.Contains(err.Error(), "h-00002-of-00002.gguf") {
		t.Errorf("got %v", err)
	}
	if _, err := ggufname.Size(dir); err == nil {
		t.Error("a folder has a size")
	}
}
