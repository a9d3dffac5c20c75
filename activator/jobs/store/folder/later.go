package folder

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// in and out return the paths of its body and of its answer: each claim writes its own answer.
func in(l *store.Later) string { return filepath.Join(dirLater, l.ID+".in") }
func out(l *store.Later) string {
	return filepath.Join(dirLater, fmt.Sprintf("%s.%d.out", l.ID, l.Epoch))
}

// NewLater implements [store.Laters].
func (s *Store) NewLater(l store.Later, body []byte, patience time.Duration) (store.Later, error) {
	if l.ID != "" {
		l.Created = time.Now()
	} else {
		l.ID, l.Created = s.ids.New("async_")
	}
	l.Deadline, l.Bytes = l.Created.Add(patience), int64(len(body))
	if err := s.take(l.Owner, l.Bytes); err != nil {
		return l, err
	}
	name := in(&l)
	err := s.create(name, body)
	if err == nil {
		err = full(s.db.Update(func(tx *bolt.Tx) error { return put(tx, bucketLater, l.Owner, l.ID, &l) }))
	}
	if err != nil {
		s.remove(name)
		s.room.Count(l.Owner, -l.Bytes)
	}
	return l, err
}

// Later implements [store.Laters].
func (s *Store) Later(owner, id string) (store.Later, error) {
	l, err := one[store.Later](s, bucketLater, owner, id)
	switch {
	case err != nil:
		return store.Later{}, err
	case l.Done() && !time.Now().Before(l.Expires):
		return store.Later{}, store.ErrNotFound
	}
	return *l, nil
}

// ClaimLater implements [store.Laters].
func (s *Store) ClaimLater(owner, id string, _ bool) (store.Later, store.Body, error) {
	l, err := change(s, bucketLater, owner, id, func(l *store.Later) error {
		if l.Done() {
			return store.ErrState
		}
		l.Epoch++
		return nil
	})
	if err != nil {
		return store.Later{}, nil, err
	}
	body, err := s.body(in(l))
	return *l, body, err
}

// LeaveLater implements [store.Laters]: another claim may follow anyway.
func (s *Store) LeaveLater(store.Later) {}

// Asked implements [store.Laters].
func (s *Store) Asked(l store.Later) ([]byte, error) {
	raw, err := os.ReadFile(s.path(in(&l)))
	if errors.Is(err, os.ErrNotExist) { // it was just answered or deleted
		err = store.ErrNotFound
	}
	return raw, err
}

// FinishLater implements [store.Laters].
func (s *Store) FinishLater(claim store.Later, status int, header http.Header, body []byte) error {
	if err := s.take(claim.Owner, int64(len(body))); err != nil {
		return err
	}
	out := out(&claim)
	err := s.create(out, body)
	if err == nil {
		_, err = change(s, bucketLater, claim.Owner, claim.ID, func(l *store.Later) error {
			if l.Epoch != claim.Epoch || l.Done() {
				return store.ErrFenced
			}
			now := time.Now()
			l.Status, l.Answer, l.Bytes, l.Ended, l.Expires = status, header, int64(len(body)), now, now.Add(s.cfg.Keep)
			return nil
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		err = store.ErrFenced
	}
	if err != nil {
		s.remove(out)
		s.room.Count(claim.Owner, -int64(len(body)))
		return err
	}
	s.remove(in(&claim))
	s.room.Count(claim.Owner, -claim.Bytes)
	return nil
}

// Answer implements [store.Laters].
func (s *Store) Answer(l store.Later) (store.Body, error) { return s.body(out(&l)) }

// DeleteLater implements [store.Laters].
func (s *Store) DeleteLater(owner, id string) error {
	var l *store.Later
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if l, err = get[store.Later](tx, bucketLater, owner, id); err != nil {
			return err
		}
		return tx.Bucket(bucketLater).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	s.remove(in(l))
	s.remove(out(l))
	s.room.Count(owner, -l.Bytes)
	return nil
}
