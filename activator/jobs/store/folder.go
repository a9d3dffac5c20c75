package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// Folder keeps objects as files of one folder, for one process:
//
//	DIR/lock               locked while the folder is open
//	DIR/tmp                unfinished files
//	DIR/KIND/OWNER/REST    an object; further slashes are commas, and upper-case letters "!" with the lower-case one, for
//	                       file systems that do not distinguish them
type Folder struct {
	dir   string
	spare int64
	lock  *os.File

	mu sync.Mutex // held between the check of a condition and the renaming
}

// OpenFolder opens or creates a folder. It refuses one that holds anything but a store, because a store removes what its
// records don't name. It waits for a process that is about to close the folder.
func OpenFolder(dir string, wait time.Duration, spare int64) (*Folder, error) {
	f := &Folder{dir: filepath.Clean(dir), spare: spare}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = f.onlyStore()
	}
	if err == nil {
		f.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", full(err))
	}
	for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		if err = disk.TryLock(f.lock, disk.Exclusive); !errors.Is(err, disk.ErrHeld) {
			break
		}
		if time.Now().After(end) {
			err = fmt.Errorf("another server uses %s", dir)
			break
		}
	}
	if err == nil {
		err = os.RemoveAll(f.path("tmp"))
	}
	if err == nil {
		err = os.Mkdir(f.path("tmp"), 0o700)
	}
	if err != nil {
		_ = f.lock.Close()
		return nil, fmt.Errorf("open the store: %w", full(err))
	}
	return f, nil
}

func (f *Folder) onlyStore() error {
	if _, err := os.Stat(f.path("format")); err == nil {
		return nil
	}
	files, err := os.ReadDir(f.dir)
	for _, file := range files {
		if name := file.Name(); name != "lock" && name != "lost+found" && (name != "tmp" || files[0].Name() != "lock") {
			return fmt.Errorf("%s has other files, such as %s: name a folder that is for the store alone", f.dir, name)
		}
	}
	return err
}

// Close implements [Objects].
func (f *Folder) Close() error { return f.lock.Close() }

// Shared implements [Objects].
func (f *Folder) Shared() bool { return false }

// Room implements [Objects].
func (f *Folder) Room(n int64) error {
	if left, known := free(f.dir); known && left < n+f.spare {
		return errDisk
	}
	return nil
}

var errDisk = fmt.Errorf("%w: the disk has no room left", ErrFull)

func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s: %w", err.Error(), errDisk) // clients see what errDisk says
	}
	return err
}

var (
	upper   = lazyregexp.New(`[A-Z]`)
	escaped = lazyregexp.New(`![a-z]`)
)

func (f *Folder) path(key string) string {
	parts := strings.SplitN(key, "/", 3)
	rest := &parts[len(parts)-1]
	*rest = strings.ReplaceAll(*rest, "/", ",")
	return filepath.Join(f.dir, upper().ReplaceAllStringFunc(filepath.Join(parts...), func(c string) string { return "!" + strings.ToLower(c) }))
}

func (f *Folder) key(path string) string {
	rest, _ := strings.CutPrefix(filepath.ToSlash(path), filepath.ToSlash(f.dir)+"/")
	return escaped().ReplaceAllStringFunc(strings.ReplaceAll(rest, ",", "/"), func(c string) string { return strings.ToUpper(c[1:]) })
}

func versionOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Put implements [Objects].
func (f *Folder) Put(key string, body []byte, when Condition) (version string, err error) {
	from, err := f.stage(body)
	if err == nil {
		err = f.place(from, f.path(key), when)
	}
	if err != nil {
		_ = os.Remove(from)
		return "", full(err)
	}
	return versionOf(body), nil
}

func (f *Folder) stage(body []byte) (name string, err error) {
	file, err := os.CreateTemp(f.path("tmp"), "")
	if err != nil {
		return "", err
	}
	_, err = file.Write(body)
	return file.Name(), errors.Join(err, file.Sync(), file.Close())
}

func (f *Folder) place(from, to string, when Condition) error {
	dir := filepath.Dir(to)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(dir, 0o700), syncDir(filepath.Dir(dir)), syncDir(f.dir)); err != nil {
			return err
		}
	}
	if err := f.rename(from, to, when); err != nil {
		return err
	}
	return changed(dir)
}

func changed(dir string) error {
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func (f *Folder) rename(from, to string, when Condition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if when != (Condition{}) {
		now, err := os.ReadFile(to)
		switch missing := errors.Is(err, fs.ErrNotExist); {
		case err != nil && !missing:
			return err
		case when.Absent && !missing, when.Version != "" && (missing || versionOf(now) != when.Version):
			return ErrChanged
		}
	}
	return os.Rename(from, to)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements [Objects].
func (f *Folder) Get(key string, from, n int64) (body []byte, version string, err error) {
	file, err := f.Open(key, from)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	if n == 0 {
		body, err = io.ReadAll(file)
	} else {
		body = make([]byte, n)
		_, err = io.ReadFull(file, body)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s from %d on: %w", key, from, err)
	}
	if from == 0 && n == 0 {
		version = versionOf(body)
	}
	return body, version, nil
}

// Open implements [Objects]. A deleted object can be read to its end.
func (f *Folder) Open(key string, from int64) (io.ReadCloser, error) {
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	} else if err != nil {
		return nil, err
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Delete implements [Objects].
func (f *Folder) Delete(key string) error {
	path := f.path(key)
	f.mu.Lock() // not between the check and the renaming of a Put
	err := os.Remove(path)
	f.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return changed(filepath.Dir(path))
}

// Forget implements [Objects].
func (f *Folder) Forget(key string) { _ = os.Remove(f.path(key)) }

// List implements [Objects].
func (f *Folder) List(prefix string) (all []Entry, err error) {
	root := f.dir
	if parts := strings.SplitN(prefix, "/", 3); len(parts) > 1 {
		root = f.path(strings.Join(parts[:len(parts)-1], "/"))
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && path == f.path("tmp"):
			return fs.SkipDir
		case d.IsDir() || path == f.lock.Name():
			return nil
		}
		key := f.key(path)
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		all = append(all, Entry{Key: key, Size: info.Size(), Version: fmt.Sprint(info.ModTime().UnixNano(), info.Size()), Modified: info.ModTime()})
		return nil
	})
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return all, err
}
