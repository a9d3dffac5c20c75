package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Upload is a file that is being written. It belongs to one goroutine.
type Upload struct {
	s     *Store
	f     *os.File
	owner string
	n     int64
	err   error
}

// NewUpload implements [store.Files].
func (s *Store) NewUpload(owner string) (store.Upload, error) {
	f, err := os.CreateTemp(s.path(dirTmp), "upload-")
	if err != nil {
		return nil, full(err)
	}
	return &Upload{s: s, f: f, owner: owner}, nil
}

// Write implements [io.Writer]. The error wraps [store.ErrFull] if there is no room.
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

// Bytes returns the number of bytes written.
func (u *Upload) Bytes() int64 { return u.n }

// Commit implements [store.Upload]. The file is durable once Commit has returned.
func (u *Upload) Commit(name, purpose string, keep time.Duration) (store.File, error) {
	s := u.s
	id, now := s.ids.New("file-")
	if keep <= 0 || keep > s.cfg.Keep {
		keep = s.cfg.Keep
	}
	f := store.File{ID: id, Owner: u.owner, Name: name, Purpose: purpose, Bytes: u.n, Created: now, Expires: now.Add(keep)}
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
		s.room.Count(u.owner, -u.n)
		return store.File{}, full(fmt.Errorf("keep the file: %w", err))
	}
	return f, nil
}

// Discard implements [store.Upload].
func (u *Upload) Discard() {
	_ = u.f.Close()
	_ = os.Remove(u.f.Name()) // otherwise the next [Open] removes it
	u.s.room.Count(u.owner, -u.n)
}

// File implements [store.Files].
func (s *Store) File(owner, id string) (store.File, error) {
	f, err := one[store.File](s, bucketFiles, owner, id)
	if err != nil {
		return store.File{}, err
	}
	if !time.Now().Before(f.Expires) {
		return store.File{}, store.ErrNotFound
	}
	return *f, nil
}

// OpenFile implements [store.Files]. The body can be read to its end even if the file is deleted meanwhile.
func (s *Store) OpenFile(owner, id string) (store.Body, store.File, error) {
	f, err := s.File(owner, id)
	if err != nil {
		return nil, f, err
	}
	body, err := s.body(filepath.Join(dirFiles, f.ID))
	return body, f, err
}

// Files implements [store.Files].
func (s *Store) Files(owner, purpose string, q store.Query) ([]store.File, bool, error) {
	now := time.Now()
	return list(s, bucketFiles, owner, q, func(f *store.File) bool {
		return (purpose == "" || f.Purpose == purpose) && !f.Hidden() && now.Before(f.Expires)
	})
}

// DeleteFile implements [store.Files].
func (s *Store) DeleteFile(owner, id string) error {
	var f *store.File
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if f, err = get[store.File](tx, bucketFiles, owner, id); err != nil {
			return err
		}
		if reads(tx, owner, id) {
			return store.ErrInUse
		}
		return tx.Bucket(bucketFiles).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	s.remove(filepath.Join(dirFiles, f.ID))
	s.room.Count(owner, -f.Bytes)
	return nil
}

// reads reports whether an unfinished batch reads a file.
func reads(tx *bolt.Tx, owner, file string) (does bool) {
	c, prefix := tx.Bucket(bucketBatches).Cursor(), key(owner, "")
	for k, raw := c.Seek(prefix); !does && bytes.HasPrefix(k, prefix); k, raw = c.Next() {
		var b store.Batch
		does = json.Unmarshal(raw, &b) == nil && b.Input == file && !b.Ended() // an unreadable record reads nothing
	}
	return does
}
