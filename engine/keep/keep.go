// Package keep stores blocks of a KV cache in a folder of files.
//
// The life of a file:
//
//  1. [Store.Save] has a new file's blocks written, adds a header (the model's key, the name and checksum of each
//     block), and renames it. It never changes again.
//  2. [Open] reads the headers of the files with the model's key, and removes damaged ones.
//  3. [Store.Find] returns where a prompt's blocks are. The reader compares checksums, and drops a file with a
//     wrong block by [Store.Drop].
//  4. If all files exceed the limit, the least recently used one is removed; also one unused for longer than the
//     age.
//
// The folder also caches the digest of a model's file ([Model]).
//
// Blocks have names of package block: no client finds those of another. The key must cover everything that decides what
// a model computes.
//
// The files hold what clients wrote: while others than the owner can open the folder, nothing in it is read or written.
// A file that others can read or write is removed, and links are not followed. Checksums detect disk errors, not
// forgery.
//
// Several processes may share a folder. Faults are logged and counted in [Stats]: the blocks are computed again. A
// Store belongs to one goroutine.
package keep

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/engine/block"
)

// Config configures a Store.
type Config struct {
	// Dir is the parent of the folder "conversations", which only the owner may open.
	Dir string
	// Limit is the most bytes of all files.
	Limit int64
	// Age is how long an unused file lives; 0: forever.
	Age time.Duration
	// Key covers what decides a block's contents.
	Key [32]byte
	// BlockBytes is the size of a block.
	BlockBytes int64
	// Log may be nil.
	Log *slog.Logger
}

const (
	folder  = "conversations"
	suffix  = ".kv"
	partial = suffix + ".tmp"
	// strayAge is when an unfinished file counts as abandoned.
	strayAge = time.Hour
	// fresh is how far the recorded time of a last use may lag.
	fresh = time.Minute
)

// Stats counts since Open, except Blocks.
type Stats struct {
	Blocks  int // in files
	Saved   int // blocks written
	Refused int // files that were corrupt or unreadable
	Failed  int // files that were not written
}

// Store is the files of one model.
type Store struct {
	cfg    Config
	dir    string
	prefix string // of the model's files
	index  map[block.Hash]place
	files  map[string]*file // by name
	stats  Stats
	shared bool // the folder is gone, or others can open it
}

type file struct {
	names []block.Hash
	sums  []uint64
	at    int64     // offset of the first block
	used  time.Time // as the file system has it
}

type place struct {
	file *file
	name string
	i    int // index in the file's names
}

// Open indexes the model's files. It fails if the folder can't be created, or others can open it.
func Open(cfg Config) (*Store, error) {
	if cfg.BlockBytes <= 0 || cfg.Limit <= 0 {
		return nil, fmt.Errorf("keep conversations in %s: blocks of %d bytes and a limit of %d: want both above 0", cfg.Dir, cfg.BlockBytes, cfg.Limit)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := private(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("keep conversations in %s: %w", cfg.Dir, err)
	}
	s := &Store{cfg: cfg, dir: dir, prefix: hex.EncodeToString(cfg.Key[:16]) + "-", index: map[block.Hash]place{}, files: map[string]*file{}}
	s.sweep(0, nil)
	for _, f := range s.list() {
		if strings.HasPrefix(f.name, s.prefix) && strings.HasSuffix(f.name, suffix) {
			s.take(f)
		}
	}
	return s, nil
}

func private(parent string) (string, error) {
	dir := filepath.Join(parent, folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !st.IsDir() || !mine(st) {
		return "", fmt.Errorf("%s is not a folder that its owner alone can open: chmod 700 it, or name another", dir)
	}
	return dir, nil
}

type entry struct {
	name  string
	bytes int64
	used  time.Time
	mine  bool // nobody else can open it
}

// alone reports whether only the owner can open the folder.
func (s *Store) alone() bool {
	st, err := os.Lstat(s.dir)
	is := err == nil && st.IsDir() && mine(st)
	if !is && !s.shared {
		s.cfg.Log.Warn("the folder of conversations is not used: it is gone, or others can open it", "dir", s.dir, "error", err)
	}
	s.shared = !is
	return is
}

// list returns the files of all models, least recently used first.
func (s *Store) list() []entry {
	if !s.alone() {
		return nil
	}
	found, err := os.ReadDir(s.dir)
	if err != nil {
		s.cfg.Log.Warn("the folder of conversations can't be read", "dir", s.dir, "error", err)
	}
	var files []entry
	for _, d := range found {
		ours := strings.HasSuffix(d.Name(), suffix) || strings.HasSuffix(d.Name(), partial) || strings.HasSuffix(d.Name(), known)
		if st, err := d.Info(); err == nil && ours && st.Mode().IsRegular() {
			files = append(files, entry{d.Name(), st.Size(), st.ModTime(), mine(st)})
		}
	}
	slices.SortStableFunc(files, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	return files
}

// sweep removes old and unfinished files, then the least recently used ones but stay, until room bytes are free. It
// returns the free bytes.
func (s *Store) sweep(room int64, stay map[string]bool) int64 {
	now := time.Now()
	var total int64
	there := map[string]bool{}
	files := slices.DeleteFunc(s.list(), func(f entry) bool {
		age := now.Sub(f.used)
		if age < -fresh {
			s.touch(f.name, now)
		}
		old := s.cfg.Age > 0 && age > s.cfg.Age || strings.HasSuffix(f.name, partial) && age > strayAge
		if old {
			s.remove(f.name)
		} else {
			there[f.name] = true
			total += f.bytes
		}
		return old
	})
	for name := range s.files {
		if !there[name] {
			s.forget(name)
		}
	}
	for _, f := range files {
		if total+room <= s.cfg.Limit {
			break
		}
		if !stay[f.name] {
			total -= f.bytes
			s.remove(f.name)
		}
	}
	return s.cfg.Limit - total
}

func (s *Store) forget(name string) {
	f := s.files[name]
	if f == nil {
		return
	}
	delete(s.files, name)
	for _, n := range f.names {
		if s.index[n].file == f {
			delete(s.index, n)
		}
	}
}

func (s *Store) remove(name string) {
	s.forget(name)
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Warn("a file of conversations can't be removed", "file", name, "error", err)
	}
}

// take indexes a file. It removes a corrupt one, but not one that can't be opened now.
func (s *Store) take(e entry) {
	if !e.mine {
		s.Drop(filepath.Join(s.dir, e.name), errors.New("others can read or write it"))
		return
	}
	f, err := s.read(filepath.Join(s.dir, e.name), e.bytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errUnopened):
		s.stats.Refused++
		s.cfg.Log.Warn("a file of conversations is not used", "error", err)
	case err != nil:
		s.Drop(filepath.Join(s.dir, e.name), err)
	default:
		f.used = e.used
		s.add(e.name, f)
	}
}

func (s *Store) add(name string, f *file) {
	s.files[name] = f
	for i, n := range f.names {
		s.index[n] = place{f, name, i}
	}
}

// Refresh indexes files that other processes have written.
func (s *Store) Refresh() {
	for _, f := range s.list() {
		if s.files[f.name] == nil && strings.HasPrefix(f.name, s.prefix) && strings.HasSuffix(f.name, suffix) {
			s.take(f)
		}
	}
}

// Run is consecutive blocks in a file.
type Run struct {
	Path   string
	Offset int64
	Sums   []uint64 // one per block
}

// Find returns where the blocks are, up to the first in no file.
func (s *Store) Find(names []block.Hash) (runs []Run) {
	if len(names) == 0 || s.index[names[0]].file == nil || !s.alone() {
		return nil
	}
	var last place
	for _, n := range names {
		p, ok := s.index[n]
		if !ok {
			break
		}
		if len(runs) == 0 || p.file != last.file || p.i != last.i+1 {
			s.use(p)
			runs = append(runs, Run{Path: filepath.Join(s.dir, p.name), Offset: p.file.at + int64(p.i)*s.cfg.BlockBytes})
		}
		r := &runs[len(runs)-1]
		r.Sums = append(r.Sums, p.file.sums[p.i])
		last = p
	}
	return runs
}

func (s *Store) use(p place) {
	now := time.Now()
	if now.Sub(p.file.used) < fresh {
		return
	}
	s.touch(p.name, now)
}

func (s *Store) touch(name string, now time.Time) {
	if f := s.files[name]; f != nil {
		f.used = now
	}
	_ = os.Chtimes(filepath.Join(s.dir, name), now, now)
}

// Drop removes an unusable file, and logs why.
func (s *Store) Drop(path string, why error) {
	s.stats.Refused++
	s.cfg.Log.Warn("a file of conversations is not used, and removed: what it held is computed again", "file", path, "error", why)
	s.remove(filepath.Base(path))
}

// Stats returns the current numbers.
func (s *Store) Stats() Stats {
	t := s.stats
	t.Blocks = len(s.index)
	return t
}
