package keep_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/keep"
)

// kept returns the only file of conversations in dir.
func kept(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "conversations", "*.kv"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files: %q, %v", files, err)
	}
	return files[0]
}

// TestPlantedFiles checks that files in the folder that have a name of ours and that others wrote are neither read
// nor followed.
func TestPlantedFiles(t *testing.T) {
	for what, plant := range map[string]func(path string, b []byte) error{
		"a symbolic link": func(path string, b []byte) error {
			elsewhere := filepath.Join(t.TempDir(), "good")
			return errors.Join(os.WriteFile(elsewhere, b, 0o600), os.Symlink(elsewhere, path))
		},
		"a pipe":   func(path string, _ []byte) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string, _ []byte) error { return os.Mkdir(path, 0o700) },
		"one that others can read": func(path string, b []byte) error {
			return errors.Join(os.WriteFile(path, b, 0o600), os.Chmod(path, 0o644))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			list := names(0, 5)
			save(t, open(t, keep.Config{Dir: dir, Limit: 1 << 20}), list)
			path := kept(t, dir)
			b, err := os.ReadFile(path)
			if err == nil {
				err = errors.Join(os.Remove(path), plant(path, b))
			}
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, keep.Config{Dir: dir, Limit: 1 << 20})
			s.Refresh()
			if n := found(t, s, list); n != 0 {
				t.Errorf("%d blocks of it are found", n)
			}
			if n := save(t, s, list); n != 5 || found(t, s, list) != 5 {
				t.Errorf("%d blocks are saved beside it, want 5", n)
			}
		})
	}
}

// TestPlantedDigest checks that a link in place of the file with a model's digest is replaced, and its target stays
// unchanged.
func TestPlantedDigest(t *testing.T) {
	dir, model, other := t.TempDir(), filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "other")
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(model, []byte("weights"), 0o600), os.WriteFile(other, []byte("precious"), 0o600), os.Chtimes(model, old, old)); err != nil {
		t.Fatal(err)
	}
	digest := func() [32]byte {
		m, err := keep.OpenModel(model, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, known := m.Known(); known {
			t.Error("the digest is known of a file that has none")
		}
		sum, err := m.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again, known := m.Known(); !known || again != sum {
			t.Errorf("the digest is not remembered: %x, %v", again, known)
		}
		return sum
	}
	want := digest()
	files, err := filepath.Glob(filepath.Join(dir, "conversations", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := errors.Join(os.Remove(files[0]), os.Symlink(other, files[0])); err != nil {
		t.Fatal(err)
	}
	if got := digest(); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "precious" {
		t.Errorf("what the link leads to has %q, %v", b, err)
	}
}

// TestFolderIsOpenedMeanwhile checks that nothing is read from or written to a folder that others can open now. Once
// its mode is restored, all blocks are found again.
func TestFolderIsOpenedMeanwhile(t *testing.T) {
	dir, list := t.TempDir(), names(0, 9)
	var log bytes.Buffer
	s := open(t, keep.Config{Dir: dir, Limit: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
	save(t, s, list[:5])
	inside := filepath.Join(dir, "conversations")
	if err := os.Chmod(inside, 0o777); err != nil { // that is the fault
		t.Fatal(err)
	}
	for range 3 {
		if n := found(t, s, list); n != 0 {
			t.Errorf("%d blocks are read of it", n)
		}
	}
	if n, err := s.Save(t.Context(), list, write(list)); n != 0 || err == nil {
		t.Errorf("%d blocks are written, %v; want an error", n, err)
	}
	if n := strings.Count(log.String(), "others can open it"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
	if err := os.Chmod(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if s.Refresh(); found(t, s, list) != 5 {
		t.Error("what was there before is not found")
	}
	if n := save(t, s, list); n != 4 {
		t.Errorf("%d are saved, want 4", n)
	}
	if err := os.RemoveAll(inside); err != nil {
		t.Fatal(err)
	}
	if s.Refresh(); found(t, s, list) != 0 {
		t.Error("what was removed is found")
	}
	if n := save(t, s, list[:3]); n != 3 || found(t, s, list) != 3 {
		t.Errorf("%d are saved after their folder was removed, want 3", n)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(t.Context(), list, write(list)); err == nil || found(t, s, list) != 0 {
		t.Errorf("without the folder that was named: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder that was named is made again: it may be a disk that is not there now")
	}
}

// TestClockJumps checks that files with a time in the future are used, and expire in their turn. A clock that jumps
// forward costs the conversations and no more.
func TestClockJumps(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "conversations")
	cfg := keep.Config{Dir: dir, Limit: 1 << 20, Age: time.Hour}
	s := open(t, cfg)
	save(t, s, names(0, 3))
	stray := filepath.Join(inside, "x.kv.tmp")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	future, past := time.Now().Add(1000*time.Hour), time.Now().Add(-2*time.Hour)
	for _, path := range []string{stray, kept(t, dir)} {
		if err := os.Chtimes(path, future, future); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, cfg)
	if found(t, s, names(0, 3)) != 3 {
		t.Error("a file of the future is not used")
	}
	for _, path := range []string{stray, kept(t, dir)} {
		if st, err := os.Stat(path); err != nil || st.ModTime().After(time.Now().Add(time.Minute)) {
			t.Errorf("%s has the time %v still, %v", path, st.ModTime(), err)
		}
		if err := os.Chtimes(path, past, past); err != nil { // as if the clock had jumped forward
			t.Fatal(err)
		}
	}
	s = open(t, cfg)
	if files, err := os.ReadDir(inside); err != nil || len(files) != 0 || found(t, s, names(0, 3)) != 0 {
		t.Errorf("what is too old is there: %v, %v", files, err)
	}
}

// TestTogether has several processes save, find, read and make room in one folder at once. Found blocks have their
// contents, or are gone when they are read. The limit holds when all are done.
func TestTogether(t *testing.T) {
	const limit = 10 * (4096 + 8*blockBytes)
	dir := t.TempDir()
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			s := open(t, keep.Config{Dir: dir, Limit: limit})
			for i := range 40 {
				list := names(8*((7*i+k)%25), 8*((7*i+k)%25)+8)
				if _, err := s.Save(t.Context(), list, write(list)); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("save: %v", err)
				}
				s.Refresh()
				if err := readable(s, names(8*(i%25), 8*(i%25)+8)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s := open(t, keep.Config{Dir: dir, Limit: limit})
	files, err := os.ReadDir(filepath.Join(dir, "conversations"))
	if err != nil || len(files) == 0 || len(files) > 10 {
		t.Errorf("%d files are there, %v; want 1 to 10", len(files), err)
	}
	if st := s.Stats(); st.Refused != 0 || st.Blocks == 0 {
		t.Errorf("%+v of %d files", st, len(files))
	}
}

// readable reads the blocks that it finds.
func readable(s *keep.Store, list []block.Hash) error {
	at := 0
	for _, r := range s.Find(list) {
		b, err := os.ReadFile(r.Path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range r.Sums {
			if got := b[int(r.Offset)+i*blockBytes:][:blockBytes]; !bytes.Equal(got, contents(list[at])) {
				return fmt.Errorf("block %d has other contents", at)
			}
			at++
		}
	}
	return nil
}

// TestThousandsOfFiles opens a folder with many files, uses it, and makes it smaller.
func TestThousandsOfFiles(t *testing.T) {
	const many = 2000
	dir := t.TempDir()
	save(t, open(t, keep.Config{Dir: dir, Limit: 1 << 30}), names(0, 1))
	path := kept(t, dir)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < many; n++ { // as Save would write them, without listing the folder each time
		one := name(n)
		copy(b[92:], one[:])
		binary.LittleEndian.PutUint64(b[108:], xxhash.Sum64(contents(one)))
		copy(b[4096:], contents(one))
		sum := sha256.Sum256(b[40:4096])
		copy(b[8:], sum[:])
		if err := os.WriteFile(fmt.Sprintf("%s%016x.kv", path[:len(path)-len("0123456789abcdef.kv")], n), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, keep.Config{Dir: dir, Limit: 1 << 30})
	if st := s.Stats(); st.Blocks != many {
		t.Fatalf("%d blocks are found, want %d", st.Blocks, many)
	}
	if s.Refresh(); found(t, s, names(0, many)) != many {
		t.Error("not all are found")
	}
	s = open(t, keep.Config{Dir: dir, Limit: 100 * (4096 + blockBytes)})
	files, err := os.ReadDir(filepath.Join(dir, "conversations"))
	if err != nil || len(files) != 100 || s.Stats().Blocks != 100 {
		t.Errorf("%d files and %d blocks are left, %v; want 100", len(files), s.Stats().Blocks, err)
	}
}

// TestFullDisk checks that on a full file system no incomplete file is left, and existing ones stay.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	s := open(t, keep.Config{Dir: dir, Limit: 1 << 30})
	save(t, s, names(0, 20))
	before, err := os.ReadDir(filepath.Join(dir, "conversations"))
	if err != nil {
		t.Fatal(err)
	}
	large := names(20, 1000)
	if n, err := s.Save(t.Context(), large, write(large)); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d blocks are saved, %v; want that the disk is full", n, err)
	}
	after, err := os.ReadDir(filepath.Join(dir, "conversations"))
	if err != nil || !slices.EqualFunc(before, after, func(a, b os.DirEntry) bool { return a.Name() == b.Name() }) {
		t.Errorf("%v are there, %v; want %v", after, err, before)
	}
	if n := save(t, s, names(20, 40)); n != 20 || found(t, s, names(0, 40)) != 40 {
		t.Errorf("%d blocks that fit are saved, want 20", n)
	}
}
