package store

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Later is the record of a request that is answered later.
type Later struct {
	ID, Owner string
	Caller    []byte // who it came from: the caller's own business
	Method    string
	URI       string
	Header    http.Header
	Created   time.Time
	Deadline  time.Time // when it is given up
	Epoch     uint64
	Bytes     int64 // of the body, or once there is one of the answer's

	Ended   time.Time // zero: there is no answer yet
	Expires time.Time // when the answer is forgotten
	Status  int
	Answer  http.Header
}

// Done says whether it was answered.
func (l *Later) Done() bool { return !l.Ended.IsZero() }

// in and out are the places of its body and of its answer: each claim writes its own.
func (l *Later) in() string  { return filepath.Join(dirLater, l.ID+".in") }
func (l *Later) out() string { return filepath.Join(dirLater, fmt.Sprintf("%s.%d.out", l.ID, l.Epoch)) }

// NewLater takes in a request: it is there for good once NewLater has returned nil. One that asks for a response has its id already.
func (s *Store) NewLater(l Later, body []byte, patience time.Duration) (Later, error) {
	if l.ID != "" {
		l.Created = time.Now()
	} else {
		l.ID, l.Created = s.newID("async_")
	}
	l.Deadline, l.Bytes = l.Created.Add(patience), int64(len(body))
	if err := s.take(l.Owner, l.Bytes); err != nil {
		return l, err
	}
	name := l.in()
	err := s.create(name, body)
	if err == nil {
		err = full(s.db.Update(func(tx *bolt.Tx) error { return put(tx, bucketLater, l.Owner, l.ID, &l) }))
	}
	if err != nil {
		s.remove(name)
		s.count(l.Owner, -l.Bytes)
	}
	return l, err
}

// Later finds a request of an owner.
func (s *Store) Later(owner, id string) (Later, error) {
	l, err := one[Later](s, bucketLater, owner, id)
	switch {
	case err != nil:
		return Later{}, err
	case l.Done() && !time.Now().Before(l.Expires):
		return Later{}, ErrNotFound
	}
	return *l, nil
}

// Unanswered are all requests without an answer, in the order in which they came.
func (s *Store) Unanswered() (all []Later, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		return each(tx, bucketLater, func(l *Later) {
			if !l.Done() {
				all = append(all, *l)
			}
		})
	})
	return all, err
}

// ClaimLater gives a request to who serves it from now on, with its body, which the caller closes.
func (s *Store) ClaimLater(owner, id string) (Later, *os.File, error) {
	l, err := change(s, bucketLater, owner, id, func(l *Later) error {
		if l.Done() {
			return ErrState
		}
		l.Epoch++
		return nil
	})
	if err != nil {
		return Later{}, nil, err
	}
	body, err := os.Open(s.path(l.in()))
	return *l, body, err
}

// Asked reads the body of a request that has no answer yet.
func (s *Store) Asked(l Later) ([]byte, error) {
	raw, err := os.ReadFile(s.path(l.in()))
	if errors.Is(err, os.ErrNotExist) { // it was answered or deleted just now
		err = ErrNotFound
	}
	return raw, err
}

// FinishLater keeps the answer of a claimed request. After an error there is none, and ErrFenced says that nobody waits for this one.
func (s *Store) FinishLater(claim Later, status int, header http.Header, body []byte) error {
	if err := s.take(claim.Owner, int64(len(body))); err != nil {
		return err
	}
	out := claim.out()
	err := s.create(out, body)
	if err == nil {
		_, err = change(s, bucketLater, claim.Owner, claim.ID, func(l *Later) error {
			if l.Epoch != claim.Epoch || l.Done() {
				return ErrFenced
			}
			now := time.Now()
			l.Status, l.Answer, l.Bytes, l.Ended, l.Expires = status, header, int64(len(body)), now, now.Add(s.cfg.Keep)
			return nil
		})
	}
	if errors.Is(err, ErrNotFound) {
		err = ErrFenced
	}
	if err != nil {
		s.remove(out)
		s.count(claim.Owner, -int64(len(body)))
		return err
	}
	s.remove(claim.in())
	s.count(claim.Owner, -claim.Bytes)
	return nil
}

// Answer opens the answer of a request.
func (s *Store) Answer(l Later) (*os.File, error) {
	f, err := os.Open(s.path(l.out()))
	if errors.Is(err, os.ErrNotExist) { // it was deleted just now
		err = ErrNotFound
	}
	return f, err
}

// DeleteLater forgets a request and its answer.
func (s *Store) DeleteLater(owner, id string) error {
	var l *Later
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if l, err = get[Later](tx, bucketLater, owner, id); err != nil {
			return err
		}
		return tx.Bucket(bucketLater).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	s.remove(l.in())
	s.remove(l.out())
	s.count(owner, -l.Bytes)
	return nil
}
