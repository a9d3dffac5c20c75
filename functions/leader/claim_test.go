package leader

import (
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	first, err := claim(dir, "default/chat 1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := claim(dir, "default/chat 1")
	if err != nil {
		t.Fatalf("a second of the same: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for runs, want := range map[string]string{"default/chat 2": "the same", "default/other 1": "another function, default/chat:"} {
		if _, err := claim(dir, runs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", runs, err, want)
		}
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := claim(dir, "default/other 1")
	if err != nil {
		t.Fatalf("after all of the others have ended: %v", err)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}
