package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadText: a file of another kind is refused, with what it is.
func TestReadText(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"kind: Service\n":             "",
		"GGUF\x03\x00":                "is a model, which --model takes, or another large file",
		strings.Repeat("x", 16<<20+1): "is a model, which --model takes, or another large file",
	} {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		raw, err := ReadText(path)
		if want == "" && (err != nil || string(raw) != content) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: got %.20q, %v, want %q", content, raw, err, want)
		}
	}
	for content, want := range map[string]string{" a token\n": "a token", "\n": "", "a\nb": "", "a\x00": ""} {
		path := filepath.Join(dir, "token")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadToken(path); want != "" && got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", content, got, err, want)
		}
	}
}
