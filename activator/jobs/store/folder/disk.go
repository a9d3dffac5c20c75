package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// full returns err as a [store.ErrFull] if the disk is full.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: the disk has no room left: %w", store.ErrFull, err)
	}
	return err
}

// syncDir syncs a folder's entries to disk.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// create writes a file atomically.
func (s *Store) create(name string, body []byte) error {
	from, err := s.stage(body)
	if err != nil {
		return err
	}
	if err = s.rename(from, name); err != nil {
		_ = os.Remove(from) // the other error matters
	}
	return err
}

// stage writes a temporary file for [Store.rename].
func (s *Store) stage(body []byte) (from string, err error) {
	f, err := os.CreateTemp(s.path(dirTmp), "new-")
	if err != nil {
		return "", full(err)
	}
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name()) // the other error matters
	}
	return f.Name(), full(err)
}

// rename moves a synced file into its place, durably.
func (s *Store) rename(from, name string) error {
	to := s.path(name)
	if err := os.Rename(from, to); err != nil {
		return full(err)
	}
	return full(syncDir(filepath.Dir(to)))
}

// remove removes a body whose record is gone. The next [Open] removes one that remains.
func (s *Store) remove(name string) { _ = os.Remove(s.path(name)) }

// body opens a body. It can be read to its end even if it is deleted meanwhile.
func (s *Store) body(name string) (store.Body, error) {
	f, err := os.Open(s.path(name))
	if errors.Is(err, os.ErrNotExist) { // it was just deleted
		return nil, store.ErrNotFound
	} else if err != nil {
		return nil, err
	}
	return f, nil
}
