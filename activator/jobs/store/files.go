package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// File is the record of a file.
type File struct {
	ID, Owner     string
	Name, Purpose string
	Bytes         int64
	Created       time.Time
	Expires       time.Time

	Of     string // the prefix of the pieces: the file's own id, or the batch's
	Pieces []Piece
}

// Hidden reports whether lists leave out the file.
func (f *File) Hidden() bool { return f.Purpose == MessagesInput || f.Purpose == PurposeMessages }

// Query selects a part of a list.
type Query struct {
	// After is the last id seen. ErrNotFound: there is no such id.
	After string
	// A list may have fewer than Limit, though others follow.
	Limit  int
	Oldest bool
}

// Upload is a file that is being written. It belongs to one goroutine.
type Upload struct {
	s     *Store
	owner string
	id    string
	n     int64
	text  []byte
	done  []Piece
	err   error
}

// NewUpload begins a file. [Upload.Commit] or [Upload.Discard] ends it.
func (s *Store) NewUpload(owner string) (*Upload, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	id, _ := s.ids.next("file-")
	if err := s.reserve(owner, recordOf(id, 0)); err != nil {
		return nil, err
	}
	return &Upload{s: s, owner: owner, id: id}, nil
}

// Write implements [io.Writer]. [ErrFull]: there is no room.
func (u *Upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 && u.err == nil {
		part := p[:min(len(p), u.s.cfg.Piece-len(u.text))]
		if u.err = u.s.reserve(u.owner, use{bytes: int64(len(part))}); u.err != nil {
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

func (u *Upload) flush() error {
	p := Piece{Name: fmt.Sprintf("%05d", len(u.done)), Bytes: int64(len(u.text))}
	err := u.s.write(dataKey(u.owner, u.id, p.Name), u.text)
	u.done, u.text = append(u.done, p), u.text[:0]
	return err
}

// Bytes returns the number of bytes written.
func (u *Upload) Bytes() int64 { return u.n }

// Commit creates the file, for keep; 0: the default. After an error there is no file.
func (u *Upload) Commit(name, purpose string, keep time.Duration) (File, error) {
	if u.err == nil && len(u.text) > 0 {
		u.err = u.flush()
	}
	if keep <= 0 || keep > u.s.cfg.Keep {
		keep = u.s.cfg.Keep
	}
	now := time.Now()
	f := File{ID: u.id, Owner: u.owner, Name: name, Purpose: purpose, Bytes: u.n, Created: now, Expires: now.Add(keep), Of: u.id, Pieces: u.done}
	if u.err == nil {
		_, u.err = put(u.s, keyOf(kindFile, u.owner, u.id), Condition{Absent: true}, &f)
	}
	if u.err != nil {
		u.s.forget(keyOf(kindFile, u.owner, u.id))
		u.Discard()
		return File{}, fmt.Errorf("keep the file: %w", u.err)
	}
	return f, nil
}

// Discard drops the upload. It must not follow a Commit.
func (u *Upload) Discard() {
	for _, p := range u.done {
		u.s.forget(dataKey(u.owner, u.id, p.Name))
	}
	u.s.release(u.owner, recordOf(u.id, u.n))
}

// File returns an owner's file.
func (s *Store) File(owner, id string) (File, error) {
	f, _, err := find[File](s, kindFile, owner, id)
	if err == nil && !time.Now().Before(f.Expires) {
		err = ErrNotFound
	}
	if err != nil {
		return File{}, err
	}
	return *f, nil
}

// OpenFile opens the body of a file.
func (s *Store) OpenFile(owner, id string) (Body, File, error) {
	f, err := s.File(owner, id)
	if err != nil {
		return nil, f, err
	}
	return s.openBody(owner, f.Of, f.Pieces), f, nil
}

// Files lists an owner's files, of a purpose if not empty. more reports whether others follow.
func (s *Store) Files(owner, purpose string, q Query) (all []File, more bool, err error) {
	now := time.Now()
	return page(s, keyOf(kindFile, owner, ""), "", q, func(f *File) bool {
		return (purpose == "" || f.Purpose == purpose) && !f.Hidden() && now.Before(f.Expires)
	})
}

// DeleteFile returns ErrInUse if a batch still reads the file. One that is created meanwhile fails for want of its input.
func (s *Store) DeleteFile(owner, id string) error {
	f, _, err := find[File](s, kindFile, owner, id)
	if err != nil {
		return err
	}
	if used, err := s.isInput(owner, id); err != nil {
		return err
	} else if used {
		return ErrInUse
	}
	return s.dropFile(owner, f)
}

func (s *Store) dropFile(owner string, f *File) error {
	if err := s.objects.Delete(keyOf(kindFile, owner, f.ID)); err != nil {
		return err
	}
	for _, p := range f.Pieces {
		s.forget(dataKey(owner, f.Of, p.Name))
	}
	s.release(owner, recordOf(f.ID, f.Bytes))
	return nil
}

func (s *Store) isInput(owner, file string) (bool, error) {
	hints, err := s.objects.List("open/" + ownerKey(owner) + "/")
	if err != nil {
		return false, err
	}
	last := ""
	for _, h := range hints {
		o, ok := parseHint(h.Key)
		if !ok || o.id == last || !IsBatch(o.id) {
			continue
		}
		last = o.id
		b, _, err := read[Job](s, keyOf(kindJob, owner, o.id))
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return false, err
		case b.Input == file && !b.Done():
			return true, nil
		}
	}
	return false, nil
}

const (
	mostPage = 1000
	abreast  = 16
)

func page[T any](s *Store, prefix, begin string, q Query, match func(*T) bool) (all []T, more bool, err error) {
	if err := s.prepare(); err != nil {
		return nil, false, err
	}
	entries, err := s.objects.List(prefix + begin)
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
			return nil, false, ErrNotFound
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
			case v == nil || !match(v):
			case len(all) == limit:
				return all, true, nil
			default:
				all = append(all, *v)
			}
		}
	}
	return all, false, nil
}

func several[T any](s *Store, prefix string, ids []string) ([]*T, error) {
	found := make([]*T, len(ids))
	var all errgroup.Group
	for k, id := range ids {
		all.Go(func() (err error) {
			found[k], _, err = read[T](s, prefix+id)
			return unlessGone(err)
		})
	}
	return found, all.Wait()
}
