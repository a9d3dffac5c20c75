package keep_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/keep"
)

const blockBytes = 100

// name returns the name of the n-th block.
func name(n int) block.Hash { return block.Hash{byte(n), byte(n >> 8), 1} }

func names(from, to int) (list []block.Hash) {
	for n := from; n < to; n++ {
		list = append(list, name(n))
	}
	return list
}

// contents returns the contents of a block.
func contents(n block.Hash) []byte {
	b := make([]byte, blockBytes)
	copy(b, n[:])
	return b
}

// write writes blocks as a worker does.
func write(list []block.Hash) keep.Write {
	return func(path string, offset int64, numbers []int) (sums []uint64, err error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for i, n := range numbers {
			b := contents(list[n])
			if _, err := f.WriteAt(b, offset+int64(i*blockBytes)); err != nil {
				return nil, err
			}
			sums = append(sums, xxhash.Sum64(b))
		}
		return sums, nil
	}
}

func open(t testing.TB, cfg keep.Config) *keep.Store {
	t.Helper()
	cfg.BlockBytes = blockBytes
	s, err := keep.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t *testing.T, s *keep.Store, list []block.Hash) int {
	t.Helper()
	n, err := s.Save(t.Context(), list, write(list))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// found returns the number of the first blocks that are there with their contents.
func found(t *testing.T, s *keep.Store, list []block.Hash) (n int) {
	t.Helper()
	for _, r := range s.Find(list) {
		b, err := os.ReadFile(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		for i, sum := range r.Sums {
			part := b[int(r.Offset)+i*blockBytes:][:blockBytes]
			if xxhash.Sum64(part) != sum || string(part) != string(contents(list[n])) {
				t.Fatalf("block %d has other contents", n)
			}
			n++
		}
	}
	return n
}

// TestStore checks that saved blocks are found by the same process and the next, that each block is in one file, and
// that other keys find nothing.
func TestStore(t *testing.T) {
	cfg := keep.Config{Dir: t.TempDir(), Limit: 1 << 20, Key: [32]byte{9}}
	s := open(t, cfg)
	if n := save(t, s, names(0, 200)); n != 200 {
		t.Errorf("%d are saved, want 200", n)
	}
	if n := save(t, s, names(100, 250)); n != 50 {
		t.Errorf("%d are saved, want the 50 that are in no file", n)
	}
	for range 2 {
		if n := found(t, s, names(0, 300)); n != 250 {
			t.Errorf("%d are found, want 250", n)
		}
		if n := found(t, s, names(251, 300)); n != 0 {
			t.Errorf("%d are found of what was not saved", n)
		}
		if got := s.Stats().Blocks; got != 250 {
			t.Errorf("%d blocks, want 250", got)
		}
		s = open(t, cfg)
	}
	cfg.Key[31] = 1 // the file's name has the first half
	other := open(t, cfg)
	if n := found(t, other, names(0, 10)); n != 0 || other.Stats().Refused != 2 {
		t.Errorf("another key finds %d, and refuses %d files", n, other.Stats().Refused)
	}
}

// bytesIn returns the size of all files.
func bytesIn(t *testing.T, dir string) (n int64, count int) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "conversations"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += st.Size()
	}
	return n, len(files)
}

// TestLimit checks that all files together stay within the limit, whatever their model, and that the most recently
// used stay.
func TestLimit(t *testing.T) {
	cfg := keep.Config{Dir: t.TempDir(), Limit: 3 * (4096 + 50*blockBytes)}
	other := cfg
	other.Key = [32]byte{1}
	save(t, open(t, other), names(0, 50))
	older(t, cfg.Dir, time.Hour)
	s := open(t, cfg)
	for i := range 8 {
		list := names(1000*i, 1000*i+50)
		save(t, s, list)
		if n := found(t, s, list); n != 50 {
			t.Errorf("round %d: %d are found of what was saved last", i, n)
		}
		if n, files := bytesIn(t, cfg.Dir); n > cfg.Limit || files > 3 {
			t.Errorf("round %d: %d bytes in %d files, want at most %d", i, n, files, cfg.Limit)
		}
		older(t, cfg.Dir, time.Minute)
	}
	if n := found(t, open(t, other), names(0, 50)); n != 0 {
		t.Errorf("%d are found of the other model, which was the oldest", n)
	}
	if n := save(t, s, names(0, 1<<12)); n >= 1<<12 || n*blockBytes > int(cfg.Limit) {
		t.Errorf("%d blocks are saved within %d bytes", n, cfg.Limit)
	}
}

// older sets back the last use of all files.
func older(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "conversations", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, st.ModTime().Add(-by), st.ModTime().Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAge checks that files that were not used for too long are removed, as are unfinished ones, and that used ones stay.
func TestAge(t *testing.T) {
	cfg := keep.Config{Dir: t.TempDir(), Limit: 1 << 20, Age: 24 * time.Hour}
	s := open(t, cfg)
	save(t, s, names(0, 5))
	stray := filepath.Join(cfg.Dir, "conversations", "half.kv.tmp")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	older(t, cfg.Dir, 20*time.Hour)
	s = open(t, cfg)
	if n := found(t, s, names(0, 5)); n != 5 {
		t.Errorf("%d are found after 20 hours, want 5", n)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unfinished file is there: %v", err)
	}
	older(t, cfg.Dir, 20*time.Hour) // since it was used
	if n := found(t, open(t, cfg), names(0, 5)); n != 5 {
		t.Errorf("%d are found 20 hours after their last use, want 5", n)
	}
	older(t, cfg.Dir, 25*time.Hour)
	if n := found(t, open(t, cfg), names(0, 5)); n != 0 {
		t.Errorf("%d are found after their time", n)
	}
}

// TestSaveIsCut checks that a save that runs out of time keeps the written blocks, and a failed one keeps none.
func TestSaveIsCut(t *testing.T) {
	cfg := keep.Config{Dir: t.TempDir(), Limit: 1 << 20}
	s := open(t, cfg)
	list := names(0, 200)
	ctx, cancel := context.WithCancel(t.Context())
	do := write(list)
	n, err := s.Save(ctx, list, func(path string, offset int64, numbers []int) ([]uint64, error) {
		cancel()
		return do(path, offset, numbers)
	})
	if err != nil || n != 16 {
		t.Errorf("%d are saved, %v; want the first 16", n, err)
	}
	broken := errors.New("no space left on device")
	calls := 0
	if _, err := s.Save(t.Context(), list, func(path string, offset int64, numbers []int) ([]uint64, error) {
		if calls++; calls > 1 {
			return nil, broken
		}
		return do(path, offset, numbers)
	}); !errors.Is(err, broken) {
		t.Errorf("a full disk: %v", err)
	}
	if _, files := bytesIn(t, cfg.Dir); files != 1 || s.Stats().Failed != 1 {
		t.Errorf("%d files are left, %+v", files, s.Stats())
	}
	for _, s := range []*keep.Store{s, open(t, cfg)} {
		if n := found(t, s, list); n != 16 {
			t.Errorf("%d are found, want 16", n)
		}
	}
	if n := save(t, s, list); n != 184 {
		t.Errorf("%d are saved at last, want 184", n)
	}
}

// TestFolders checks that a folder that others can open, or a path that is not a folder, is refused.
func TestFolders(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"others read":     func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o750)) },
		"a file":          func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a symbolic link": func(path string) error { return os.Symlink(t.TempDir(), path) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "conversations")); err != nil {
			t.Fatal(err)
		}
		if _, err := keep.Open(keep.Config{Dir: dir, Limit: 1, BlockBytes: 1}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// FuzzFile checks for any file that reading it takes little memory and finds no incomplete block.
func FuzzFile(f *testing.F) {
	dir := f.TempDir()
	s := open(f, keep.Config{Dir: dir, Limit: 1 << 20})
	if _, err := s.Save(f.Context(), names(0, 3), write(names(0, 3))); err != nil {
		f.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "conversations", "*"))
	if err != nil || len(files) != 1 {
		f.Fatal(files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, byte(0), len(good))
	f.Add(90, byte(1), len(good))
	f.Add(83, byte(0x80), len(good))
	f.Add(75, byte(0xff), 100)
	f.Fuzz(func(t *testing.T, at int, flip byte, size int) {
		b := slices.Clone(good)
		b = b[:max(0, min(size, len(b)))]
		if at >= 0 && at < len(b) {
			b[at] ^= flip
		}
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, keep.Config{Dir: dir, Limit: 1 << 20})
		runs := s.Find(names(0, 3))
		// The reader of the blocks checks their sums.
		if same := len(b) == len(good) && slices.Equal(b[:4096], good[:4096]); same != (fmt.Sprint(len(runs)) == "1") {
			t.Errorf("byte %d ^ %#x of %d bytes: %d runs are found", at, flip, len(b), len(runs))
		}
	})
}
