package store

import (
	"errors"
	"strings"
	"time"
)

// A conversation is a job that ended when it was created. [Response.Previous] is its last turn: a response that only
// conversations use, and that goes on from the turn before. So a stored response may be deleted without its conversation.
const (
	PrefixConversation = "conv_"
	prefixTurn         = "turn_"
)

// IsConversation reports whether an id is a conversation's.
func IsConversation(id string) bool { return strings.HasPrefix(id, PrefixConversation) }

// IsTurn reports whether an id is a turn's.
func IsTurn(id string) bool { return strings.HasPrefix(id, prefixTurn) }

// TurnID returns the id of the turn that a response adds to a conversation.
func TurnID(response string) string { return prefixTurn + strings.TrimPrefix(response, PrefixResponse) }

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
	c, _, err := s.changeJob(owner, id, func(c *Job) error {
		c.Metadata = metadata
		return nil
	})
	if err != nil {
		return Job{}, err
	}
	return *c, nil
}

// AddTurn appends a turn with an id, unless it was appended before, and keeps the conversation as long as the turn.
// Turns that are added at the same time follow each other. ErrNotFound: the conversation was deleted.
func (s *Store) AddTurn(owner, conversation, id string, input, answer []byte) error {
	c, err := s.Job(owner, conversation)
	if err != nil {
		return err
	}
	var before []string
	for at := c.Previous; at != ""; {
		if at == id {
			return nil
		}
		t, err := s.Job(owner, at)
		if err != nil {
			return err
		}
		before, at = append(before, at), t.Previous
	}
	turn := Job{ID: id, Owner: owner, Created: time.Now(), Status: Completed, Response: Response{Previous: c.Previous}}
	err = s.KeepResponse(turn, before, input, answer, nil)
	if err != nil && !errors.Is(err, ErrFenced) { // fenced: it is there, but was not appended
		return err
	}
	err = s.setLastTurn(owner, conversation, func(last string) (string, error) {
		if last == turn.Previous {
			return id, nil
		}
		_, _, err := s.changeJob(owner, id, func(t *Job) error {
			t.Previous = last
			return nil
		})
		turn.Previous = last
		return id, err
	})
	if err != nil {
		err = errors.Join(err, unlessGone(s.Delete(owner, id)))
	}
	return err
}

// setLastTurn sets a conversation's last turn to the one that next returns for the present one.
func (s *Store) setLastTurn(owner, conversation string, next func(last string) (string, error)) error {
	_, _, err := s.changeJob(owner, conversation, func(c *Job) (err error) {
		c.Previous, err = next(c.Previous)
		// Its turns may be kept shorter than requested, by this: see prolong.
		c.Expires = time.Now().Add(s.cfg.Keep - s.cfg.Keep/30)
		return err
	})
	return err
}

// ReplaceTurns replaces all turns of a conversation by one with the input, if its last turn is still last; else the error is
// ErrState.
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

// DeleteConversation deletes a conversation with its turns.
func (s *Store) DeleteConversation(owner, id string) error {
	c, err := s.Job(owner, id)
	if err == nil {
		err = s.dropJob(&c)
	}
	if err == nil {
		err = s.deleteTurns(owner, c.Previous)
	}
	return err
}

// deleteTurns deletes a turn and those before it.
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
