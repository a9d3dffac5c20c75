package bucket

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

type responseRecord struct {
	store.Response
	Body string // the name of its body
	// Deleted means that it was deleted: the record stays for a while, so that a late writer does not create it
	// again.
	Deleted bool
}

func (r *responseRecord) bytes() int64 { return r.Input + r.Answer }
func (r *responseRecord) piece() piece { return piece{r.Body, r.bytes()} }

// NewResponseID implements [store.Responses].
func (s *Store) NewResponseID() (string, time.Time) { return s.ids.New("resp_") }

// KeepResponse implements [store.Responses].
func (s *Store) KeepResponse(r store.Response, before []string, input, answer []byte, claim *store.Later) error {
	if err := s.prepare(); err != nil {
		return err
	}
	r.Input, r.Answer = int64(len(input)), int64(len(answer))
	r.Expires = r.Created.Add(s.cfg.Keep)
	rec := &responseRecord{Response: r, Body: "body-" + rand.Text()}
	owner := ownerKey(r.Owner)
	if err := s.room.TakeResponses(owner, 1); err != nil {
		return err
	}
	if err := s.room.Take(owner, rec.bytes()); err != nil {
		s.room.CountResponses(owner, -1)
		return err
	}
	err := s.keep(r.Owner, r.ID, rec.piece(), append(append(make([]byte, 0, rec.bytes()), input...), answer...))
	if err == nil {
		err = s.prolong(&r, before)
	}
	if err == nil {
		err = s.record(rec, claim)
	}
	if err != nil {
		if !errors.Is(err, store.ErrUnavailable) || claim == nil {
			s.forget(dataKey(r.Owner, r.ID, rec.Body))
		}
		s.room.Count(owner, -rec.bytes())
		s.room.CountResponses(owner, -1)
		return fmt.Errorf("keep the response: %w", err)
	}
	return nil
}

// record writes the record of a response whose body exists, or first adds it to the record of its request.
func (s *Store) record(rec *responseRecord, claim *store.Later) error {
	if claim == nil {
		_, err := create(s, keyOf(kindResponse, rec.Owner, rec.ID), rec)
		switch {
		case errors.Is(err, errConflict):
			return store.ErrFenced
		case err != nil: // it may exist: its client is told that it does not
			s.forget(keyOf(kindResponse, rec.Owner, rec.ID))
		}
		return err
	}
	if _, _, err := read[responseRecord](s, keyOf(kindResponse, rec.Owner, rec.ID)); err == nil {
		return store.ErrFenced
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	l, _, err := change(s, keyOf(kindLater, claim.Owner, claim.ID), func(l *laterRecord) error {
		if l.Becomes != nil && l.Epoch == claim.Epoch && l.Becomes.Created.Equal(rec.Created) && l.Becomes.bytes() == rec.bytes() {
			return nil // an earlier attempt has done it
		}
		if err := under(l, claim); err != nil {
			return err
		}
		l.Becomes, l.Holder = rec, ""
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrFenced) {
		s.drop(claim.ID)
		return store.ErrFenced
	} else if err != nil {
		return err
	}
	s.drop(claim.ID)
	if err := s.become(l); err != nil { // it exists all the same: the next lookup does the rest
		s.log.Warn("the record of a response comes later", "response", rec.ID, "error", err)
	}
	return nil
}

// become creates the record of the response that has replaced a request, and deletes the request. It may have been
// done before.
func (s *Store) become(l *laterRecord) error {
	if _, err := create(s, keyOf(kindResponse, l.Owner, l.ID), l.Becomes); err != nil && !errors.Is(err, errConflict) {
		return err
	}
	if err := s.remove(keyOf(kindLater, l.Owner, l.ID)); err != nil {
		return err
	}
	s.forget(dataKey(l.Owner, l.ID, in(&l.Later).Name))
	s.forgetHints(openLater, l.Owner, l.ID)
	s.room.Count(ownerKey(l.Owner), -l.Bytes)
	return nil
}

// prolong keeps the responses before r as long as r. Differences below a thirtieth of the time are ignored, so that
// not every turn writes them all.
func (s *Store) prolong(r *store.Response, before []string) error {
	errs := make([]error, len(before))
	slots := make(chan struct{}, abreast) // taken and given back by each; bounds the concurrency
	var all sync.WaitGroup
	for k, id := range before {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, _, errs[k] = change(s, keyOf(kindResponse, r.Owner, id), func(old *responseRecord) error {
				if old.Deleted || r.Expires.Sub(old.Expires) <= s.cfg.Keep/30 {
					return errEnough
				}
				old.Expires = r.Expires
				return nil
			})
			if errors.Is(errs[k], errEnough) || errors.Is(errs[k], store.ErrNotFound) { // it is kept long enough, or was deleted meanwhile
				errs[k] = nil
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

var errEnough = errors.New("there is nothing to change")

// response returns the record of a response.
func (s *Store) response(owner, id string) (*responseRecord, error) {
	r, _, err := find[responseRecord](s, kindResponse, owner, id)
	if errors.Is(err, store.ErrNotFound) && isID(id) {
		var l *laterRecord
		if l, _, err = read[laterRecord](s, keyOf(kindLater, owner, id)); err == nil && l.Becomes != nil {
			r, err = l.Becomes, s.become(l)
		} else if err == nil {
			err = store.ErrNotFound
		}
	}
	if err == nil && (r.Deleted || !time.Now().Before(r.Expires)) {
		err = store.ErrNotFound
	}
	return r, err
}

// Response implements [store.Responses].
func (s *Store) Response(owner, id string) (store.Response, error) {
	r, err := s.response(owner, id)
	if err != nil {
		return store.Response{}, err
	}
	return r.Response, nil
}

// ReadResponse implements [store.Responses].
func (s *Store) ReadResponse(r store.Response) (input, answer []byte, err error) {
	rec, err := s.response(r.Owner, r.ID)
	if err != nil {
		return nil, nil, err
	}
	raw, err := s.whole(r.Owner, r.ID, rec.piece())
	if err != nil {
		return nil, nil, err
	}
	return raw[:rec.Input:rec.Input], raw[rec.Input:], nil
}

// tombstone is how long the record of a deleted response stays.
const tombstone = time.Hour

// DeleteResponse implements [store.Responses].
func (s *Store) DeleteResponse(owner, id string) error {
	r, err := s.response(owner, id)
	if err != nil {
		return err
	}
	return s.dropResponse(owner, r)
}

func (s *Store) dropResponse(owner string, r *responseRecord) (err error) {
	key := keyOf(kindResponse, owner, r.ID)
	if r.Background && time.Now().Before(r.Expires) {
		_, _, err = change(s, key, func(r *responseRecord) error {
			r.Deleted, r.Expires = true, time.Now().Add(tombstone)
			return nil
		})
	} else {
		err = s.remove(key)
	}
	if err != nil {
		return err
	}
	s.forget(dataKey(owner, r.ID, r.Body))
	s.room.Count(ownerKey(owner), -r.bytes())
	s.room.CountResponses(ownerKey(owner), -1)
	return nil
}
