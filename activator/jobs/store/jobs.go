package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// NewID returns an id, and the time of its creation. It stores nothing.
func (s *Store) NewID(prefix string) (string, time.Time) { return s.ids.next(prefix) }

// New stores a job with an id of [Store.NewID], which is given up after window. ErrNotFound: the owner has no such input.
func (s *Store) New(j Job, body []byte, window time.Duration) (Job, error) {
	if err := s.prepare(); err != nil {
		return j, err
	}
	j.Created = time.Now()
	if j.Input != "" {
		if _, err := s.File(j.Owner, j.Input); err != nil {
			return j, err
		}
		j.OutID, _ = s.ids.next("file-")
		j.ErrID, _ = s.ids.next("file-")
		j.Status = Validating
	}
	j.Deadline, j.Body = j.Created.Add(window), Piece{"in", int64(len(body))}
	u := recordOf(j.ID, j.Body.Bytes)
	err := s.reserve(j.Owner, u)
	if err == nil {
		if err = s.createJob(&j, body); err != nil {
			s.release(j.Owner, u)
		}
	}
	return j, err
}

func (s *Store) createJob(j *Job, body []byte) error {
	err := s.writeBody(j.Owner, j.ID, j.Body, body)
	if err == nil {
		err = s.write(hintKey(j.Owner, j.ID, firstHint), nil)
	}
	if err == nil {
		_, err = put(s, keyOf(kindJob, j.Owner, j.ID), Condition{Absent: true}, j)
	}
	if err != nil {
		s.forget(keyOf(kindJob, j.Owner, j.ID), hintKey(j.Owner, j.ID, firstHint), dataKey(j.Owner, j.ID, j.Body.Name))
	}
	return err
}

// Job returns an owner's job. One that has expired is ErrNotFound.
func (s *Store) Job(owner, id string) (Job, error) {
	j, _, err := find[Job](s, kindJob, owner, id)
	if err == nil && j.Done() && !time.Now().Before(j.Expires) {
		err = ErrNotFound
	}
	if err != nil {
		return Job{}, err
	}
	return *j, nil
}

// Jobs lists an owner's jobs whose ids have a prefix. more reports whether others follow.
func (s *Store) Jobs(owner, prefix string, q Query) (all []Job, more bool, err error) {
	now := time.Now()
	return page(s, keyOf(kindJob, owner, ""), prefix, q, func(j *Job) bool { return !j.Done() || now.Before(j.Expires) })
}

// Cancel requests the cancellation of a batch, of which its member learns at the next poll. ErrState: it has ended, or is
// about to.
func (s *Store) Cancel(owner, id string) (Job, error) {
	j, _, err := s.changeJob(owner, id, func(j *Job) error {
		switch {
		case !j.Sealed.IsZero():
			return ErrState
		case j.Status == Validating, j.Status == InProgress:
			j.Status, j.CancelAsked = Cancelling, time.Now()
			return nil
		case j.Status == Cancelling:
			return nil
		}
		return ErrState
	})
	if err == nil {
		err = s.write(hintKey(owner, id, cancelHint), nil)
	}
	if j == nil {
		return Job{}, err
	}
	return *j, err
}

// Delete deletes a job and its files. ErrState: it is a batch that has not ended. Who works on a request learns of it at
// the next poll.
func (s *Store) Delete(owner, id string) error {
	j, _, err := find[Job](s, kindJob, owner, id)
	switch {
	case err != nil:
		return err
	case IsBatch(j.ID) && !j.Done():
		return ErrState
	}
	return s.dropJob(j)
}

func (s *Store) dropJob(j *Job) error {
	if err := s.objects.Delete(keyOf(kindJob, j.Owner, j.ID)); err != nil {
		return err
	}
	for _, f := range j.outputs(0) {
		if f, _, err := find[File](s, kindFile, j.Owner, f.ID); err == nil {
			if err := s.dropFile(j.Owner, f); err != nil {
				return err
			}
		} else if unlessGone(err) != nil {
			return err
		}
	}
	for _, p := range []Piece{j.Body, j.Answer} {
		if p.Bytes > 0 {
			s.forget(dataKey(j.Owner, j.ID, p.Name))
		}
	}
	if !j.Done() {
		s.forgetHints(j.Owner, j.ID)
	}
	s.release(j.Owner, recordOf(j.ID, j.Body.Bytes+j.Answer.Bytes))
	return nil
}

// OpenRequest opens the body of a request that has not ended.
func (s *Store) OpenRequest(j Job) (Body, error) { return s.openPiece(j.Owner, j.ID, j.Body) }

// ReadRequest reads the body of a request that has not ended.
func (s *Store) ReadRequest(j Job) ([]byte, error) { return s.readBody(j.Owner, j.ID, j.Body) }

// OpenAnswer opens the answer of a request.
func (s *Store) OpenAnswer(j Job) (Body, error) { return s.openPiece(j.Owner, j.ID, j.Answer) }

// ReadResponse reads a response's input and answer.
func (s *Store) ReadResponse(j Job) (input, answer []byte, err error) {
	raw, err := s.readBody(j.Owner, j.ID, j.Answer)
	if err != nil {
		return nil, nil, err
	}
	return raw[:j.InputBytes:j.InputBytes], raw[j.InputBytes:], nil
}

// KeepResponse stores a response whose id, owner, status and time are set, and ends the request of claim, if not nil.
// After an error other than ErrUnavailable it is not stored. Those in before are kept as long as it is. ErrFenced: it was
// cancelled or deleted.
func (s *Store) KeepResponse(r Job, before []string, input, answer []byte, claim *Claim) error {
	from := r.Created
	if claim != nil {
		from = time.Now()
	}
	err := s.prepare()
	if err == nil {
		err = s.prolong(r.Owner, before, from.Add(s.cfg.Keep))
	}
	body := append(append(make([]byte, 0, len(input)+len(answer)), input...), answer...)
	switch {
	case err != nil:
	case claim != nil:
		err = claim.writeAnswer(body, func(j *Job) {
			j.Status, j.Previous, j.Background, j.InputBytes = r.Status, r.Previous, r.Background, int64(len(input))
		})
	default:
		r.InputBytes, r.Answer = int64(len(input)), Piece{"out-" + rand.Text(), int64(len(body))}
		err = s.createResponse(&r, body)
	}
	if err != nil {
		return fmt.Errorf("keep the response: %w", err)
	}
	return nil
}

func (s *Store) createResponse(r *Job, body []byte) error {
	r.markEnded(r.Created, s.cfg.Keep)
	u := recordOf(r.ID, r.Answer.Bytes)
	err := s.reserve(r.Owner, u)
	if err != nil {
		return err
	}
	err = s.writeBody(r.Owner, r.ID, r.Answer, body)
	if err == nil {
		_, err = put(s, keyOf(kindJob, r.Owner, r.ID), Condition{Absent: true}, r)
	}
	if err == nil {
		return nil
	}
	s.release(r.Owner, u)
	s.forget(dataKey(r.Owner, r.ID, r.Answer.Name))
	if errors.Is(err, ErrChanged) {
		return ErrFenced
	}
	s.forget(keyOf(kindJob, r.Owner, r.ID))
	return err
}

// prolong keeps responses until a time. It ignores a thirtieth of it: not every turn writes them all.
func (s *Store) prolong(owner string, ids []string, until time.Time) error {
	var all errgroup.Group
	all.SetLimit(abreast)
	for _, id := range ids {
		all.Go(func() error {
			_, _, err := s.changeJob(owner, id, func(old *Job) error {
				if until.Sub(old.Expires) <= s.cfg.Keep/30 {
					return errEnough
				}
				old.Expires = until
				return nil
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return unlessGone(err)
		})
	}
	return all.Wait()
}

var errEnough = errors.New("there is nothing to change")
