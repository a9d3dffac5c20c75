package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// File is the record of a file.
type File struct {
	ID, Owner     string
	Name, Purpose string
	Bytes         int64
	Created       time.Time
	Expires       time.Time
}

// Upload is a file that is being written. It belongs to one goroutine.
type Upload struct {
	s     *Store
	f     *os.File
	owner string
	n     int64
	err   error
}

// NewUpload begins to write a file. [Upload.Commit] or [Upload.Discard] ends it.
func (s *Store) NewUpload(owner string) (*Upload, error) {
	f, err := os.CreateTemp(s.path(dirTmp), "upload-")
	if err != nil {
		return nil, full(err)
	}
	return &Upload{s: s, f: f, owner: owner}, nil
}

// Write implements [io.Writer]. The error wraps [ErrFull] where there is no room.
func (u *Upload) Write(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	if u.err = u.s.take(u.owner, int64(len(p))); u.err != nil {
		return 0, u.err
	}
	u.n += int64(len(p))
	n, err := u.f.Write(p)
	u.err = full(err)
	return n, u.err
}

// Bytes is how many were written.
func (u *Upload) Bytes() int64 { return u.n }

// ReaderAt reads what was written.
func (u *Upload) ReaderAt() io.ReaderAt { return u.f }

// Commit makes the file: it is there, for good, once Commit has returned. keep is how long; 0: as long as the store keeps things.
func (u *Upload) Commit(name, purpose string, keep time.Duration) (File, error) {
	s := u.s
	id, now := s.newID("file-")
	if keep <= 0 || keep > s.cfg.Keep {
		keep = s.cfg.Keep
	}
	f := File{ID: id, Owner: u.owner, Name: name, Purpose: purpose, Bytes: u.n, Created: now, Expires: now.Add(keep)}
	place := filepath.Join(dirFiles, id)
	err := errors.Join(u.err, u.f.Sync(), u.f.Close())
	if err == nil {
		err = s.rename(u.f.Name(), place)
	}
	if err == nil {
		err = s.db.Update(func(tx *bolt.Tx) error { return put(tx, bucketFiles, f.Owner, id, &f) })
	}
	if err != nil {
		_ = os.Remove(u.f.Name()) // it is in one of the two places
		s.remove(place)
		s.count(u.owner, -u.n)
		return File{}, full(fmt.Errorf("keep the file: %w", err))
	}
	return f, nil
}

// Discard forgets what was written. It must not follow a Commit.
func (u *Upload) Discard() {
	_ = u.f.Close()
	_ = os.Remove(u.f.Name()) // else the next [Open] removes it
	u.s.count(u.owner, -u.n)
}

// File finds a file of an owner.
func (s *Store) File(owner, id string) (File, error) {
	f, err := one[File](s, bucketFiles, owner, id)
	if err != nil {
		return File{}, err
	}
	if !time.Now().Before(f.Expires) {
		return File{}, ErrNotFound
	}
	return *f, nil
}

// OpenFile opens the body of a file. It can be read to its end though the file is deleted meanwhile.
func (s *Store) OpenFile(owner, id string) (*os.File, File, error) {
	f, err := s.File(owner, id)
	if err != nil {
		return nil, f, err
	}
	body, err := os.Open(s.path(filepath.Join(dirFiles, f.ID)))
	if errors.Is(err, os.ErrNotExist) { // it was deleted just now
		err = ErrNotFound
	}
	return body, f, err
}

// Files lists files of an owner, those of a purpose where one is given.
func (s *Store) Files(owner, purpose string, q Query) ([]File, bool, error) {
	now := time.Now()
	return list(s, bucketFiles, owner, q, func(f *File) bool {
		hidden := f.Purpose == MessagesInput || f.Purpose == purposeMessages
		return (purpose == "" || f.Purpose == purpose) && !hidden && now.Before(f.Expires)
	})
}

// DeleteFile deletes a file, unless a batch still reads it (ErrInUse).
func (s *Store) DeleteFile(owner, id string) error {
	var f *File
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if f, err = get[File](tx, bucketFiles, owner, id); err != nil {
			return err
		}
		if reads(tx, owner, id) {
			return ErrInUse
		}
		return tx.Bucket(bucketFiles).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	s.remove(filepath.Join(dirFiles, f.ID))
	s.count(owner, -f.Bytes)
	return nil
}

// reads says whether a batch that has not ended reads a file.
func reads(tx *bolt.Tx, owner, file string) (does bool) {
	c, prefix := tx.Bucket(bucketBatches).Cursor(), key(owner, "")
	for k, raw := c.Seek(prefix); !does && bytes.HasPrefix(k, prefix); k, raw = c.Next() {
		var b Batch
		does = json.Unmarshal(raw, &b) == nil && b.Input == file && !b.Ended() // a record that can't be read reads nothing
	}
	return does
}
