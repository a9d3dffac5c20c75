package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/jobs/store/storetest"
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// again closes a store and reopens it.
func (s *Store) again(t *testing.T) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.cfg)
}

// files returns the names in a folder of a store.
func files(t *testing.T, s *Store, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestStore runs the tests of package storetest; after each, the folder has no body without a record.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, l store.Limits) func() store.Store {
		cfg := Config{Dir: t.TempDir(), Limits: l}
		var s *Store
		t.Cleanup(func() { checkFolder(t, s) })
		return func() store.Store {
			if s != nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, cfg)
			return s
		}
	})
}

// checkFolder counts what is on disk.
func checkFolder(t *testing.T, s *Store) {
	t.Helper()
	size := int64(0)
	for _, dir := range []string{dirFiles, dirParts, dirLater, dirResponses, dirTmp} {
		for _, name := range files(t, s, dir) {
			info, err := os.Stat(s.path(filepath.Join(dir, name)))
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
	}
	if size != s.Bytes() {
		t.Errorf("%d bytes are on disk, %d are counted", size, s.Bytes())
	}
}

// TestFinishTwice: a kill between the renaming of the parts and the transaction.
func TestFinishTwice(t *testing.T) {
	s := open(t, Config{})
	c := storetest.Batch(t, s, storetest.Upload(t, s, "a", "…").ID)
	if err := c.Record([]store.Result{storetest.Result(0, true)}); err != nil {
		t.Fatal(err)
	}
	b := c.Batch()
	for _, p := range parts(&b) {
		if err := c.(*Claim).publish(p); err != nil {
			t.Fatal(err)
		}
	}
	s = s.again(t)
	next, _, err := s.Claim("a", b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Finish(store.Completed, nil); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Read(t, s, "a", b.OutID); got != "line 0\n" {
		t.Errorf("the output is %q", got)
	}
	if _, err := s.File("a", b.ErrID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a file without errors: %v, want ErrNotFound", err)
	}
}

// TestOneServer: a store can be open in one process only.
func TestOneServer(t *testing.T) {
	s := open(t, Config{})
	cfg := s.cfg
	cfg.Wait = time.Millisecond
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "another server uses") {
		t.Errorf("opened twice: %v", err)
	}
	cfg.Wait = time.Minute
	opened := make(chan error)
	go func() {
		next, err := Open(cfg)
		if err == nil {
			err = next.Close()
		}
		opened <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("opened once the other has ended: %v", err)
	}
}
