package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

func place(r *store.Response) string  { return filepath.Join(dirResponses, r.ID) }
func bytesOf(r *store.Response) int64 { return r.Input + r.Answer }

// NewResponseID implements [store.Responses].
func (s *Store) NewResponseID() (string, time.Time) { return s.ids.New("resp_") }

// KeepResponse implements [store.Responses]. After an error the response is never stored.
func (s *Store) KeepResponse(r store.Response, before []string, input, answer []byte, claim *store.Later) error {
	r.Input, r.Answer = int64(len(input)), int64(len(answer))
	r.Expires = r.Created.Add(s.cfg.Keep)
	if err := s.room.TakeResponses(r.Owner, 1); err != nil {
		return err
	}
	if err := s.take(r.Owner, bytesOf(&r)); err != nil {
		s.room.CountResponses(r.Owner, -1)
		return err
	}
	from, err := s.stage(append(append(make([]byte, 0, bytesOf(&r)), input...), answer...))
	if err == nil {
		err = full(s.db.Update(func(tx *bolt.Tx) error { return s.putResponse(tx, &r, before, claim, from) }))
	}
	if err != nil {
		_ = os.Remove(from) // it may already be in its place
		if !errors.Is(err, store.ErrFenced) {
			s.remove(place(&r))
		}
		s.room.Count(r.Owner, -bytesOf(&r))
		s.room.CountResponses(r.Owner, -1)
		return fmt.Errorf("keep the response: %w", err)
	}
	if claim != nil {
		s.remove(in(claim))
		s.room.Count(claim.Owner, -claim.Bytes)
	}
	return nil
}

// putResponse writes the record of a response whose body is staged, and moves the body into its place.
func (s *Store) putResponse(tx *bolt.Tx, r *store.Response, before []string, claim *store.Later, from string) error {
	if err := done(tx, claim); err != nil {
		return err
	}
	if tx.Bucket(bucketResponses).Get(key(r.Owner, r.ID)) != nil {
		return store.ErrFenced
	}
	if err := s.prolong(tx, r, before); err != nil {
		return err
	}
	if err := s.rename(from, place(r)); err != nil {
		return err
	}
	return put(tx, bucketResponses, r.Owner, r.ID, r)
}

// done deletes the request of a claim that still counts.
func done(tx *bolt.Tx, claim *store.Later) error {
	if claim == nil {
		return nil
	}
	l, err := get[store.Later](tx, bucketLater, claim.Owner, claim.ID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (l.Epoch != claim.Epoch || l.Done()):
		return store.ErrFenced
	case err != nil:
		return err
	}
	return tx.Bucket(bucketLater).Delete(key(l.Owner, l.ID))
}

// prolong keeps the responses before r as long as r. Differences below a thirtieth of the time are ignored, so that
// not every turn writes them all.
func (s *Store) prolong(tx *bolt.Tx, r *store.Response, before []string) error {
	for _, id := range before {
		old, err := get[store.Response](tx, bucketResponses, r.Owner, id)
		if errors.Is(err, store.ErrNotFound) { // it was deleted meanwhile
			continue
		} else if err != nil {
			return err
		}
		if r.Expires.Sub(old.Expires) <= s.cfg.Keep/30 {
			continue
		}
		old.Expires = r.Expires
		if err := put(tx, bucketResponses, r.Owner, id, old); err != nil {
			return err
		}
	}
	return nil
}

// Response implements [store.Responses].
func (s *Store) Response(owner, id string) (store.Response, error) {
	r, err := one[store.Response](s, bucketResponses, owner, id)
	switch {
	case err != nil:
		return store.Response{}, err
	case !time.Now().Before(r.Expires):
		return store.Response{}, store.ErrNotFound
	}
	return *r, nil
}

// ReadResponse implements [store.Responses].
func (s *Store) ReadResponse(r store.Response) (input, answer []byte, err error) {
	raw, err := os.ReadFile(s.path(place(&r)))
	switch {
	case errors.Is(err, os.ErrNotExist): // it was just deleted
		return nil, nil, store.ErrNotFound
	case err != nil:
		return nil, nil, err
	case int64(len(raw)) != bytesOf(&r):
		return nil, nil, fmt.Errorf("read the response %s: it has %d bytes, want %d", r.ID, len(raw), bytesOf(&r))
	}
	return raw[:r.Input:r.Input], raw[r.Input:], nil
}

// DeleteResponse implements [store.Responses].
func (s *Store) DeleteResponse(owner, id string) error {
	n, err := s.deleteResponses([]*store.Response{{Owner: owner, ID: id}}, nil)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}

// deleteResponses deletes the responses that still exist and still match, in one transaction.
func (s *Store) deleteResponses(all []*store.Response, match func(*store.Response) bool) (n int, err error) {
	var gone []*store.Response
	err = s.db.Update(func(tx *bolt.Tx) error {
		for _, r := range all {
			now, err := get[store.Response](tx, bucketResponses, r.Owner, r.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && match != nil && !match(now) {
				continue
			} else if err != nil {
				return err
			}
			if err := tx.Bucket(bucketResponses).Delete(key(r.Owner, r.ID)); err != nil {
				return err
			}
			gone = append(gone, now)
		}
		return nil
	})
	if err != nil {
		return 0, full(err)
	}
	for _, r := range gone {
		s.remove(place(r))
		s.room.Count(r.Owner, -bytesOf(r))
		s.room.CountResponses(r.Owner, -1)
	}
	return len(gone), nil
}

// sweepAtOnce bounds the responses deleted in one transaction.
const sweepAtOnce = 1000

func (s *Store) sweepResponses(now time.Time) (n int, err error) {
	expired := func(r *store.Response) bool { return !now.Before(r.Expires) }
	var old []*store.Response
	err = s.db.View(func(tx *bolt.Tx) error {
		return each(tx, bucketResponses, func(r *store.Response) {
			if expired(r) {
				old = append(old, r)
			}
		})
	})
	for len(old) > 0 && err == nil {
		some := old[:min(len(old), sweepAtOnce)]
		var deleted int
		deleted, err = s.deleteResponses(some, expired)
		n, old = n+deleted, old[len(some):]
	}
	return n, err
}
