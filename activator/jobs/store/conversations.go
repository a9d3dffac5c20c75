package store

import (
	"errors"
	"strings"
	"time"
)

// A conversation is a job that ended when it was created. [Response.Previous] is its last turn: a response that only
// conversations use, and that continues from the turn before.
const (
	PrefixConversation = "conv_"
	prefixTurn         = "turn_"
)

// IsTurn reports whether an id is a turn's.
func IsTurn(id string) bool { return strings.HasPrefix(id, prefixTurn) }

// NewConversation stores a conversation without turns.
func (s *Store) NewConversation(owner string, metadata map[string]string) (Job, error) {
	c := Job{Owner: owner, Status: Completed}
	c.ID, c.Created = s.ids.next(PrefixConversation)
	c.Metadata = metadata
	err := s.prepare()
	if err == nil {
		err = s.createResponse(&c, nil)
	}
	return c, err
}

// SetMetadata replaces a conversation's metadata.
func (s *Store) SetMetadata(owner, id string, metadata map[string]string) (Job, error) {
	return s.changeConversation(owner, id, func(c *Job) error {
		c.Metadata = metadata
		return nil
	})
}

func (s *Store) changeConversation(owner, id string, do func(c *Job) error) (Job, error) {
	c, _, err := s.changeJob(owner, id, func(c *Job) error {
		if !time.Now().Before(c.Expires) {
			return ErrNotFound
		}
		return do(c)
	})
	if err != nil {
		return Job{}, err
	}
	return *c, nil
}

// AddTurn appends a turn. Turns that are added at the same time follow each other. fits, if not nil, may refuse each turn
// that the new one would follow. with, if not nil, stores another job just before the turn counts, and returns its id: both are
// stored, or neither is.
func (s *Store) AddTurn(owner, conversation string, input, answer []byte, fits func(last string) error, with func() (id string, err error)) (id string, err error) {
	c, before, err := s.turnsOf(owner, conversation)
	if err != nil {
		return "", err
	}
	if fits == nil {
		fits = func(string) error { return nil }
	}
	if err := fits(c.Previous); err != nil {
		return "", err
	}
	id, now := s.ids.next(prefixTurn)
	turn := Job{ID: id, Owner: owner, Created: now, Status: Completed, Response: Response{Previous: c.Previous}}
	if err := s.KeepResponse(turn, before, input, answer, nil); err != nil {
		return "", err
	}
	also := ""
	if with != nil {
		also, err = with()
	}
	if err == nil {
		err = s.setLastTurn(owner, conversation, func(last string) (string, error) {
			if last == turn.Previous {
				return id, nil
			}
			if err := fits(last); err != nil {
				return "", err
			}
			_, _, err := s.changeJob(owner, id, func(t *Job) error {
				t.Previous = last
				return nil
			})
			turn.Previous = last
			return id, err
		})
		if err != nil && also != "" {
			err = errors.Join(err, unlessGone(s.Delete(owner, also)))
		}
	}
	if err != nil {
		err = errors.Join(err, unlessGone(s.Delete(owner, id)))
	}
	return id, err
}

func (s *Store) turnsOf(owner, conversation string) (c Job, ids []string, err error) {
	for range mostConflicts {
		if c, err = s.Job(owner, conversation); err != nil {
			return c, nil, err
		}
		ids = nil
		for at := c.Previous; at != "" && err == nil; {
			var t Job
			t, err = s.Job(owner, at)
			ids, at = append(ids, at), t.Previous
		}
		if !errors.Is(err, ErrNotFound) { // the turns were not just replaced
			return c, ids, err
		}
	}
	return c, nil, changing(conversation)
}

func (s *Store) setLastTurn(owner, conversation string, next func(last string) (string, error)) error {
	_, err := s.changeConversation(owner, conversation, func(c *Job) (err error) {
		c.Previous, err = next(c.Previous)
		// prolong may keep the turns this much shorter.
		c.Expires = time.Now().Add(s.cfg.Keep - s.cfg.Keep/30)
		return err
	})
	return err
}

// ReplaceTurns replaces all turns of a conversation by one. ErrState: last is no longer the last turn.
func (s *Store) ReplaceTurns(owner, conversation, last string, input []byte) error {
	id, now := s.ids.next(prefixTurn)
	turn := Job{ID: id, Owner: owner, Created: now, Status: Completed}
	if err := s.KeepResponse(turn, nil, input, nil, nil); err != nil {
		return err
	}
	err := s.setLastTurn(owner, conversation, func(is string) (string, error) {
		if is != last {
			return "", ErrState
		}
		return id, nil
	})
	if err != nil {
		return errors.Join(err, unlessGone(s.Delete(owner, id)))
	}
	return s.deleteTurns(owner, last)
}

// DeleteConversation expires the conversation before its turns: nothing is added meanwhile.
func (s *Store) DeleteConversation(owner, id string) error {
	c, err := s.changeConversation(owner, id, func(c *Job) error {
		c.Expires = time.Now()
		return nil
	})
	if err == nil {
		err = s.dropJob(&c)
	}
	if err == nil {
		err = s.deleteTurns(owner, c.Previous)
	}
	return err
}

func (s *Store) deleteTurns(owner, id string) error {
	for id != "" {
		t, err := s.Job(owner, id)
		if err == nil {
			err = s.dropJob(&t)
		}
		if err != nil {
			return unlessGone(err)
		}
		id = t.Previous
	}
	return nil
}
