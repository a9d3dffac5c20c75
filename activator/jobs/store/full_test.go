//go:build linux

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFullDisk fills a small disk: excess data is refused, stored data stays, and space is freed again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small disk can be made: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(Config{At: dir, Spare: 256 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := putFile(t, s, "a", strings.Repeat("x", 100<<10))
	c := newBatch(t, s, first.ID)
	before := s.Bytes()
	u, err := s.NewUpload("a")
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "others")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	if _, err = u.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Fatalf("a file on a full disk: %v, want ErrFull", err)
	}
	if _, err := create(s, Job{Owner: "a"}, []byte("asked"), time.Minute); !errors.Is(err, ErrFull) {
		t.Errorf("a request meanwhile: %v, want ErrFull", err)
	}
	r := Job{ID: "resp_1", Owner: "a", Created: time.Now()}
	if err := s.KeepResponse(r, nil, []byte("asked"), []byte("answered"), nil); !errors.Is(err, ErrFull) || s.room.used["a"].records != 3 {
		t.Errorf("a response meanwhile: %v, want ErrFull", err)
	}
	if err := c.Record([]Result{result(0, true)}); !errors.Is(err, ErrFull) {
		t.Errorf("a result meanwhile: %v, want ErrFull", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	u.Discard()
	if got := s.Bytes(); got != before {
		t.Errorf("%d bytes are counted, want %d", got, before)
	}
	if err := c.Record([]Result{result(0, true)}); err != nil {
		t.Errorf("a result once there is room: %v", err)
	}
	if err := c.Finish(Completed, nil); err != nil {
		t.Error(err)
	}
	if got := readFile(t, s, "a", first.ID); len(got) != 100<<10 {
		t.Errorf("the first file has %d bytes", len(got))
	}
	if err := s.DeleteFile("a", first.ID); err != nil {
		t.Error(err)
	}
}

// TestFullWithoutSpare fills the disk completely, so that transactions fail too: no stored data is lost.
func TestFullWithoutSpare(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small disk can be made: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(Config{At: dir, Spare: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := []string{}
	for failures := 0; failures < 3; {
		u, err := s.NewUpload("a")
		if err != nil {
			failures++
			continue
		}
		if _, err = u.Write(make([]byte, 5000)); err != nil {
			u.Discard()
			failures++
			continue
		}
		f, err := u.Commit("f", "batch", 0)
		if err != nil {
			if !errors.Is(err, ErrFull) {
				t.Errorf("not said to be full: %v", err)
			}
			failures++
			continue
		}
		kept = append(kept, f.ID)
	}
	if len(kept) == 0 {
		t.Fatal("nothing was kept")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Config{At: dir}, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range kept {
		if got := readFile(t, s, "a", id); len(got) != 5000 {
			t.Errorf("%s has %d bytes", id, len(got))
		}
	}
}
