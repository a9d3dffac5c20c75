package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

type laterRecord struct {
	store.Later
	// Becomes is the response that has replaced it, whose record may not exist yet.
	Becomes *responseRecord
}

// in and out return the pieces of its body and of its answer: each claim writes its own answer.
func in(l *store.Later) piece  { return piece{"in", l.Bytes} }
func out(l *store.Later) piece { return piece{fmt.Sprintf("out-%d", l.Epoch), l.Bytes} }

// NewLater implements [store.Laters].
func (s *Store) NewLater(l store.Later, body []byte, patience time.Duration) (store.Later, error) {
	if err := s.prepare(); err != nil {
		return l, err
	}
	if l.ID != "" {
		l.Created = time.Now()
	} else {
		l.ID, l.Created = s.ids.New("async_")
	}
	l.Deadline, l.Bytes = l.Created.Add(patience), int64(len(body))
	if err := s.room.Take(ownerKey(l.Owner), l.Bytes); err != nil {
		return l, err
	}
	err := s.keep(l.Owner, l.ID, in(&l), body)
	if err == nil {
		err = s.write(hintKey(openLater, l.Owner, l.ID, firstHint), nil)
	}
	if err == nil {
		_, err = create(s, keyOf(kindLater, l.Owner, l.ID), &laterRecord{Later: l})
	}
	if err != nil { // it may exist, but no one knows its id
		s.forget(keyOf(kindLater, l.Owner, l.ID), hintKey(openLater, l.Owner, l.ID, firstHint), dataKey(l.Owner, l.ID, in(&l).Name))
		s.room.Count(ownerKey(l.Owner), -l.Bytes)
	}
	return l, err
}

// Later implements [store.Laters].
func (s *Store) Later(owner, id string) (store.Later, error) {
	l, _, err := find[laterRecord](s, kindLater, owner, id)
	switch {
	case err != nil:
		return store.Later{}, err
	case l.Becomes != nil, l.Done() && !time.Now().Before(l.Expires):
		return store.Later{}, store.ErrNotFound
	}
	return l.Later, nil
}

// ClaimLater implements [store.Laters].
func (s *Store) ClaimLater(owner, id string, take bool) (store.Later, store.Body, error) {
	if _, _, err := find[laterRecord](s, kindLater, owner, id); err != nil {
		return store.Later{}, nil, err
	}
	if err := s.join(); err != nil {
		return store.Later{}, nil, err
	}
	before := ""
	l, _, err := change(s, keyOf(kindLater, owner, id), func(l *laterRecord) error {
		switch {
		case l.Becomes != nil:
			return store.ErrNotFound
		case l.Done():
			return store.ErrState
		case !take:
			if err := s.mayClaim(l.Holder); err != nil {
				return err
			}
		}
		before = claimHint(l.Epoch, l.Holder)
		l.Epoch++
		l.Holder = s.member
		return nil
	})
	switch {
	case errors.Is(err, store.ErrState): // the member that answered it may not have deleted them
		s.forgetHints(openLater, owner, id)
	case errors.Is(err, store.ErrNotFound) && l != nil && l.Becomes != nil:
		if err := s.become(l); err != nil {
			return store.Later{}, nil, err
		}
	}
	if err != nil {
		return store.Later{}, nil, err
	}
	s.hold(openLater, owner, id, l.Epoch, before)
	body, err := s.openSmall(owner, id, in(&l.Later))
	if err != nil {
		s.LeaveLater(l.Later)
	}
	return l.Later, body, err
}

// LeaveLater implements [store.Laters].
func (s *Store) LeaveLater(claim store.Later) {
	s.drop(claim.ID)
	_, _, err := change(s, keyOf(kindLater, claim.Owner, claim.ID), func(l *laterRecord) error {
		if err := under(l, &claim); err != nil {
			return err
		}
		l.Holder = ""
		return nil
	})
	if err == nil {
		s.release(openLater, claim.Owner, claim.ID, claim.Epoch)
	}
}

// under returns ErrFenced if a claim no longer counts.
func under(l *laterRecord, claim *store.Later) error {
	if l.Epoch != claim.Epoch || l.Done() || l.Becomes != nil {
		return store.ErrFenced
	}
	return nil
}

// Asked implements [store.Laters].
func (s *Store) Asked(l store.Later) ([]byte, error) {
	if !isID(l.ID) {
		return nil, store.ErrNotFound
	}
	if l.Bytes == 0 {
		_, err := s.Later(l.Owner, l.ID)
		return nil, err
	}
	return s.whole(l.Owner, l.ID, in(&l))
}

// FinishLater implements [store.Laters].
func (s *Store) FinishLater(claim store.Later, status int, header http.Header, body []byte) error {
	owner := ownerKey(claim.Owner)
	if err := s.room.Take(owner, int64(len(body))); err != nil {
		return err
	}
	answered := claim
	now := time.Now()
	answered.Status, answered.Answer, answered.Bytes, answered.Ended, answered.Expires, answered.Holder = status, header, int64(len(body)), now, now.Add(s.cfg.Keep), ""
	err := s.keep(claim.Owner, claim.ID, out(&answered), body)
	again := false // an earlier attempt may have done it
	if err == nil {
		_, _, err = change(s, keyOf(kindLater, claim.Owner, claim.ID), func(l *laterRecord) error {
			if l.Epoch == claim.Epoch && l.Done() && l.Ended.Equal(now) {
				again = true
			} else if err := under(l, &claim); err != nil {
				return err
			}
			l.Later = answered
			return nil
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		err = store.ErrFenced
	}
	if err != nil && !again {
		s.room.Count(owner, -int64(len(body)))
		if errors.Is(err, store.ErrFenced) {
			s.drop(claim.ID)
			s.dropAnswer(claim, out(&answered).Name)
		}
		return err
	}
	s.drop(claim.ID)
	s.forget(dataKey(claim.Owner, claim.ID, in(&claim).Name))
	s.forgetHints(openLater, claim.Owner, claim.ID)
	s.room.Count(owner, -claim.Bytes)
	return nil
}

// dropAnswer deletes an answer that a claim has written, unless it counts: then an earlier attempt has recorded it.
func (s *Store) dropAnswer(claim store.Later, name string) {
	l, _, err := read[laterRecord](s, keyOf(kindLater, claim.Owner, claim.ID))
	if errors.Is(err, store.ErrNotFound) || err == nil && l.Epoch != claim.Epoch {
		s.forget(dataKey(claim.Owner, claim.ID, name))
	}
}

// Answer implements [store.Laters].
func (s *Store) Answer(l store.Later) (store.Body, error) { return s.openSmall(l.Owner, l.ID, out(&l)) }

// DeleteLater implements [store.Laters]. The member that serves it learns of it at the next poll.
func (s *Store) DeleteLater(owner, id string) error {
	l, _, err := find[laterRecord](s, kindLater, owner, id)
	if err != nil {
		return err
	}
	if l.Becomes != nil {
		return errors.Join(s.become(l), store.ErrNotFound)
	}
	return s.dropLater(owner, &l.Later)
}

// dropLater deletes a request, answered or not.
func (s *Store) dropLater(owner string, l *store.Later) error {
	if err := s.remove(keyOf(kindLater, owner, l.ID)); err != nil {
		return err
	}
	s.forget(dataKey(owner, l.ID, in(l).Name))
	if l.Done() {
		s.forget(dataKey(owner, l.ID, out(l).Name))
	} else {
		s.forgetHints(openLater, owner, l.ID)
	}
	s.room.Count(ownerKey(owner), -l.Bytes)
	return nil
}
