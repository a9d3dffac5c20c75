package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b := open(), open()
	for _, step := range []struct {
		name string
		err  error
		want error
	}{
		{"a takes it", TryLock(a, Exclusive), nil},
		{"b can't", TryLock(b, Exclusive), ErrHeld},
		{"nor share it", TryLock(b, Shared), ErrHeld},
		{"a shares it", WaitLock(a, Shared), nil},
		{"b too", TryLock(b, Shared), nil},
		{"a lets it go", WaitLock(a, Unlock), nil},
		{"b has it alone", WaitLock(b, Exclusive), nil},
	} {
		if !errors.Is(step.err, step.want) {
			t.Errorf("%s: %v, want %v", step.name, step.err, step.want)
		}
	}
}
