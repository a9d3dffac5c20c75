package bucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

type fileRecord struct {
	store.File
	Of     string // the prefix of the pieces: the file's own id, or the batch's
	Pieces []piece
}

type upload struct {
	s     *Store
	owner string
	id    string
	n     int64
	text  []byte // of the next piece
	done  []piece
	err   error
}

// NewUpload implements [store.Files].
func (s *Store) NewUpload(owner string) (store.Upload, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	id, _ := s.ids.New("file-")
	return &upload{s: s, owner: owner, id: id}, nil
}

// Write implements [io.Writer].
func (u *upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 && u.err == nil {
		part := p[:min(len(p), u.s.cfg.Piece-len(u.text))]
		if u.err = u.s.room.Take(ownerKey(u.owner), int64(len(part))); u.err != nil {
			break
		}
		u.n += int64(len(part))
		n += len(part)
		u.text, p = append(u.text, part...), p[len(part):]
		if len(u.text) == u.s.cfg.Piece {
			u.err = u.flush()
		}
	}
	return n, u.err
}

func (u *upload) flush() error {
	p := piece{Name: fmt.Sprintf("%05d", len(u.done)), Bytes: int64(len(u.text))}
	err := u.s.write(dataKey(u.owner, u.id, p.Name), u.text)
	u.done, u.text = append(u.done, p), u.text[:0]
	return err
}

// Bytes implements [store.Upload].
func (u *upload) Bytes() int64 { return u.n }

// Commit implements [store.Upload].
func (u *upload) Commit(name, purpose string, keep time.Duration) (store.File, error) {
	if u.err == nil && len(u.text) > 0 {
		u.err = u.flush()
	}
	if keep <= 0 || keep > u.s.cfg.Keep {
		keep = u.s.cfg.Keep
	}
	now := time.Now()
	f := fileRecord{File: store.File{ID: u.id, Owner: u.owner, Name: name, Purpose: purpose, Bytes: u.n, Created: now, Expires: now.Add(keep)}, Of: u.id, Pieces: u.done}
	if u.err == nil {
		_, u.err = create(u.s, keyOf(kindFile, u.owner, u.id), &f)
	}
	if u.err != nil {
		u.s.forget(keyOf(kindFile, u.owner, u.id))
		u.Discard()
		return store.File{}, fmt.Errorf("keep the file: %w", u.err)
	}
	return f.File, nil
}

// Discard implements [store.Upload].
func (u *upload) Discard() {
	for _, p := range u.done {
		u.s.forget(dataKey(u.owner, u.id, p.Name))
	}
	u.s.room.Count(ownerKey(u.owner), -u.n)
}

// file returns the record of a file that has not expired.
func (s *Store) file(owner, id string) (*fileRecord, error) {
	f, _, err := find[fileRecord](s, kindFile, owner, id)
	if err == nil && !time.Now().Before(f.Expires) {
		err = store.ErrNotFound
	}
	return f, err
}

// File implements [store.Files].
func (s *Store) File(owner, id string) (store.File, error) {
	f, err := s.file(owner, id)
	if err != nil {
		return store.File{}, err
	}
	return f.File, nil
}

// OpenFile implements [store.Files].
func (s *Store) OpenFile(owner, id string) (store.Body, store.File, error) {
	f, err := s.file(owner, id)
	if err != nil {
		return nil, store.File{}, err
	}
	return s.open(owner, f.Of, f.Pieces), f.File, nil
}

// Files implements [store.Files].
func (s *Store) Files(owner, purpose string, q store.Query) ([]store.File, bool, error) {
	now := time.Now()
	all, more, err := page(s, keyOf(kindFile, owner, ""), "", q, func(f *fileRecord) bool {
		return (purpose == "" || f.Purpose == purpose) && !f.Hidden() && now.Before(f.Expires)
	})
	files := make([]store.File, len(all))
	for k, f := range all {
		files[k] = f.File
	}
	return files, more, err
}

// DeleteFile implements [store.Files]. A batch that is created with the file meanwhile fails because its input does
// not exist.
func (s *Store) DeleteFile(owner, id string) error {
	f, _, err := find[fileRecord](s, kindFile, owner, id)
	if err != nil {
		return err
	}
	if used, err := s.reads(owner, id); err != nil {
		return err
	} else if used {
		return store.ErrInUse
	}
	return s.dropFile(owner, f)
}

// dropFile deletes an unused file.
func (s *Store) dropFile(owner string, f *fileRecord) error {
	if err := s.remove(keyOf(kindFile, owner, f.ID)); err != nil {
		return err
	}
	for _, p := range f.Pieces {
		s.forget(dataKey(owner, f.Of, p.Name))
	}
	s.room.Count(ownerKey(owner), -f.Bytes)
	return nil
}

// reads reports whether an unfinished batch reads a file.
func (s *Store) reads(owner, file string) (bool, error) {
	hints, err := s.list("open/" + openBatch + "/" + ownerKey(owner) + "/")
	if err != nil {
		return false, err
	}
	last := ""
	for _, h := range hints {
		o, ok := parseHint(h.Key)
		if !ok || o.id == last {
			continue
		}
		last = o.id
		b, _, err := read[batchRecord](s, keyOf(kindBatch, owner, o.id))
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return false, err
		case b.Input == file && !b.Ended():
			return true, nil
		}
	}
	return false, nil
}

// Bounds of a page: its records, and the concurrent reads.
const (
	mostPage = 1000
	abreast  = 16
)

// page returns the matching records of a list whose ids have a prefix. See [store.Files.Files].
func page[T any](s *Store, prefix, begin string, q store.Query, match func(*T) bool) (all []T, more bool, err error) {
	if err := s.prepare(); err != nil {
		return nil, false, err
	}
	entries, err := s.list(prefix + begin)
	if err != nil {
		return nil, false, err
	}
	ids := make([]string, len(entries))
	for k, e := range entries {
		ids[k] = strings.TrimPrefix(e.Key, prefix)
	}
	if !q.Oldest {
		slices.Reverse(ids)
	}
	if q.After != "" {
		at := slices.Index(ids, q.After)
		if at < 0 {
			return nil, false, store.ErrNotFound
		}
		ids = ids[at+1:]
	}
	limit := min(q.Limit, mostPage)
	for len(ids) > 0 {
		some := ids[:min(len(ids), abreast)]
		ids = ids[len(some):]
		found, err := several[T](s, prefix, some)
		if err != nil {
			return nil, false, err
		}
		for _, v := range found {
			switch {
			case v == nil || match != nil && !match(v):
			case len(all) == limit:
				return all, true, nil
			default:
				all = append(all, *v)
			}
		}
	}
	return all, false, nil
}

// several reads records concurrently; nil for those that no longer exist.
func several[T any](s *Store, prefix string, ids []string) ([]*T, error) {
	found, errs := make([]*T, len(ids)), make([]error, len(ids))
	var all sync.WaitGroup
	for k, id := range ids {
		all.Go(func() { found[k], _, errs[k] = read[T](s, prefix+id) })
	}
	all.Wait()
	for k, err := range errs {
		if errors.Is(err, store.ErrNotFound) {
			found[k], errs[k] = nil, nil
		}
	}
	return found, errors.Join(errs...)
}
