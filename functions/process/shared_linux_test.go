package process

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestSharedFilesAreFound: a file that is mapped shared and read-only is counted apart from all other memory, as far as it is resident.
func TestSharedFilesAreFound(t *testing.T) {
	const size = 32 << 20
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	find := func() (all api.Bytes, found map[string]mapped) {
		t.Helper()
		found = map[string]mapped{}
		all, ok := proportional(os.Getpid(), found)
		if !ok {
			t.Fatal("this process can't be measured")
		}
		return all, found
	}
	touch := func(prot, flags int) []byte {
		t.Helper()
		mem, err := syscall.Mmap(int(f.Fd()), 0, size, prot, flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(mem) })
		sum := byte(0)
		for at := 0; at < size; at += 4096 {
			sum += mem[at]
		}
		return mem[:sum] // none: all are zero
	}
	touch(syscall.PROT_READ, syscall.MAP_PRIVATE)
	touch(syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if _, found := find(); len(found) > 0 {
		t.Errorf("what is private, or written to, counts as shared: %v", found)
	}
	touch(syscall.PROT_READ, syscall.MAP_SHARED)
	all, found := find()
	if len(found) != 1 {
		t.Fatalf("%d shared files, want one", len(found))
	}
	for name, m := range found {
		if m.whole < size || m.ours < api.KiB || m.ours > m.whole || all < m.ours {
			t.Errorf("of %s %s are in memory, %s of them this process's, of %s", name, m.whole, m.ours, all)
		}
	}
}
