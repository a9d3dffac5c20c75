// Package keep is a folder of files with blocks of a key-value cache, for the time when no process has them in memory.
//
// The life of a file:
//
//  1. [Store.Save] gives it a temporary name and permissions 0600, has somebody else write the blocks' contents, and then
//     writes a header: the key of the model, and for each block its name and the sum of its contents. Only then
//     it gets its own name. It is never changed.
//  2. [Open] reads the headers of the files that have the model's key. A file that is not exactly as it was written
//     (another length, another header) is removed.
//  3. [Store.Find] says where the blocks of a prompt lie. Who reads them compares their sums; a file with a
//     block that has another goes, by [Store.Drop].
//  4. Where all files together would be more than the limit, whatever their model, the one that was not used for longest
//     goes first, and each goes when it was not used for longer than the age.
//
// The digest of a model's file, which takes long to make, is remembered in the same folder ([Model]).
//
// A block is found by its name, which is half a SHA-256 over all tokens up to its end, the adapter and what keeps clients
// apart (package block), so nobody finds what was computed for another. The key is the caller's: everything that decides
// what a model computes. Nothing here knows tokens.
//
// The files hold what clients wrote, in a form that a model can read: only the owner can open their folder. Where others can later, nothing in it is
// read or written until that is mended. Where it was removed, the next [Store.Save] makes it again, but not the folder that it
// lies in. A file that others can read or write goes, and links are not followed. The
// sums find disks that err. They are no signature: who can write the folder can change answers.
//
// Several processes may use one folder. A file that another one has removed is not there, and that is all.
//
// What it refuses: to fail somebody's request. Each fault is a line in the log and a number in [Stats], and what was
// to be kept is computed again. A Store belongs to one goroutine.
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

// Config says what is kept where.
type Config struct {
	// Dir is the folder; the files lie in a folder "conversations" of it, which is made and must be the owner's alone.
	Dir string
	// Limit is the most bytes of all files together.
	Limit int64
	// Age is how long a file lives that nobody uses; 0: for ever.
	Age time.Duration
	// Key is different for whatever computes other contents.
	Key [32]byte
	// BlockBytes is the size of one block's contents.
	BlockBytes int64
	// Log gets what is wrong with files; nil discards it.
	Log *slog.Logger
}

// Names of files.
const (
	folder  = "conversations"
	suffix  = ".kv"
	partial = suffix + ".tmp"
	// strayAge is the age at which a file that was never finished counts as one that no process writes any more.
	strayAge = time.Hour
	// fresh is how long the time of a file's last use may be behind.
	fresh = time.Minute
)

// Stats are counts since Open, but for Blocks.
type Stats struct {
	Blocks  int // that are in files and can be found
	Saved   int // blocks written
	Refused int // files that were not as they were written, or could not be read
	Failed  int // files that could not be written
}

// Store is the files of one model.
type Store struct {
	cfg    Config
	dir    string
	prefix string // of the model's files
	index  map[block.Hash]place
	files  map[string]*file // by name
	stats  Stats
	shared bool // the folder is not the owner's alone any more
}

// file is one that is indexed.
type file struct {
	names []block.Hash
	sums  []uint64
	at    int64     // where the first block begins
	used  time.Time // as the file system has it
}

// place is a block in a file.
type place struct {
	file *file
	name string
	i    int
}

// Open finds the model's files. It fails for a folder that can't be made, or that others can read.
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

// private makes the folder of the files.
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

// entry is a file of the folder, of any model.
type entry struct {
	name  string
	bytes int64
	used  time.Time
	mine  bool // nobody else can read or write it
}

// alone says whether the folder is still its owner's alone. It may have been changed since Open: then nothing in it is used, and nothing
// is written, until it is mended. The log says it once.
func (s *Store) alone() bool {
	st, err := os.Lstat(s.dir)
	is := err == nil && st.IsDir() && mine(st)
	if !is && !s.shared {
		s.cfg.Log.Warn("the folder of conversations is not used: it is gone, or others can open it", "dir", s.dir, "error", err)
	}
	s.shared = !is
	return is
}

// list is the folder's files, the one that was not used for longest first.
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

// sweep removes what is too old or unfinished, and then the oldest until there is room for more bytes, but for those files
// that are to stay. It forgets files that somebody else has removed. It returns the room that there is then.
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

// forget takes a file out of the index.
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

// remove deletes a file.
func (s *Store) remove(name string) {
	s.forget(name)
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Warn("a file of conversations can't be removed", "file", name, "error", err)
	}
}

// take reads a file's header. One that is not as it was written goes; one that can't be opened now may be good.
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

// Refresh finds the files that others have written since.
func (s *Store) Refresh() {
	for _, f := range s.list() {
		if s.files[f.name] == nil && strings.HasPrefix(f.name, s.prefix) && strings.HasSuffix(f.name, suffix) {
			s.take(f)
		}
	}
}

// Run is blocks that lie in a file one after the other.
type Run struct {
	Path   string
	Offset int64
	Sums   []uint64 // one a block
}

// Find says where the first of the named blocks lie, up to the first one that is in no file.
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

// use marks a file as used.
func (s *Store) use(p place) {
	now := time.Now()
	if now.Sub(p.file.used) < fresh {
		return
	}
	s.touch(p.name, now)
}

// touch gives a file the time of its last use.
func (s *Store) touch(name string, now time.Time) {
	if f := s.files[name]; f != nil {
		f.used = now
	}
	_ = os.Chtimes(filepath.Join(s.dir, name), now, now) // it is gone, or may not be changed: then it goes earlier
}

// Drop removes a file that can't be used, for a reason.
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
