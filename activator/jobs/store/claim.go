package store

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Claim is the right to work on a job until another claim follows; then every method returns ErrFenced. It belongs to one
// goroutine.
type Claim struct {
	s       *Store
	job     *Job
	version string
	unsure  bool // a write of the record may have happened
	ended   bool

	pieces  int       // pieces, or answers, that this claim has begun
	tails   [2][]byte // the last pieces, if they are this claim's
	retried bool      // the last Record may have recorded results
}

// Claim claims a job. ErrState: the job has ended. ErrHeld: another works on it; take takes the job from that one.
func (s *Store) Claim(owner, id string, take bool) (*Claim, error) {
	if err := s.members.join(); err != nil {
		return nil, err
	}
	before := ""
	j, version, err := s.changeJob(owner, id, func(j *Job) error {
		if j.Done() {
			return ErrState
		}
		if !take {
			if err := s.members.mayClaim(j.Holder); err != nil {
				return err
			}
		}
		before = claimHint(j.Epoch, j.Holder)
		j.Epoch++
		j.Holder = s.members.own
		return nil
	})
	if errors.Is(err, ErrState) {
		s.forgetHints(owner, id) // its last holder may not have
	}
	if err != nil {
		s.members.dropClaim(id)
		return nil, err
	}
	c := &Claim{s: s, job: j, version: version}
	s.members.addClaim(j)
	c.changeHint(before, claimHint(j.Epoch, s.members.own))
	if !j.Sealed.IsZero() {
		defer c.Close()
		if err := c.endBatch(); err != nil {
			return nil, err
		}
		return nil, ErrState
	}
	return c, nil
}

// Job returns the record as known to the claim.
func (c *Claim) Job() Job { return *c.job }

// LinesDone returns a batch's lines with a result.
func (c *Claim) LinesDone() map[int]bool {
	done := map[int]bool{}
	for line := range 8 * len(c.job.Lines) {
		if c.job.lineDone(line) {
			done[line] = true
		}
	}
	return done
}

// Close lets another claim follow.
func (c *Claim) Close() {
	if c.ended {
		return
	}
	_ = c.markLost()
	if c.unsure { // others notice when this member is gone, and this one at its next poll
		return
	}
	next := c.job.clone()
	next.Holder = ""
	if _, err := put(c.s, c.key(), Condition{Version: c.version}, next); err == nil {
		c.changeHint(claimHint(next.Epoch, c.s.members.own), claimHint(next.Epoch, ""))
	}
}

func (c *Claim) changeHint(before, after string) {
	if !c.s.objects.Shared() {
		return
	}
	if err := c.s.write(hintKey(c.job.Owner, c.job.ID, after), nil); err == nil {
		c.s.forget(hintKey(c.job.Owner, c.job.ID, before))
	}
}

func (c *Claim) key() string { return keyOf(kindJob, c.job.Owner, c.job.ID) }

func (c *Claim) markLost() error {
	c.ended, c.tails = true, [2][]byte{}
	c.s.members.dropClaim(c.job.ID)
	return ErrFenced
}

func (j *Job) clone() *Job {
	c := *j
	c.Lines = slices.Clone(j.Lines)
	for k := range j.Pieces {
		c.Pieces[k] = slices.Clone(j.Pieces[k])
	}
	return &c
}

func (c *Claim) rereadRecord() error {
	j, version, err := read[Job](c.s, c.key())
	switch {
	case errors.Is(err, ErrNotFound):
		return c.markLost()
	case err != nil:
		return err
	case j.Epoch != c.job.Epoch || j.Holder != c.s.members.own && !j.Done():
		return c.markLost()
	}
	c.job, c.version, c.unsure = j, version, false
	return nil
}

// Change changes the record under the claim's epoch. do may be called several times, and sees a cancellation. After an error
// nothing has changed, or the next call finds out.
func (c *Claim) Change(do func(*Job) error) error {
	if c.ended {
		return ErrFenced
	}
	for range mostConflicts {
		if c.unsure {
			if err := c.rereadRecord(); err != nil {
				return err
			}
		}
		next := c.job.clone()
		if err := do(next); err != nil {
			return err
		}
		version, err := put(c.s, c.key(), Condition{Version: c.version}, next)
		if err == nil {
			c.job, c.version = next, version
			return nil
		}
		if c.unsure = true; !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return changing(c.job.ID)
}

// Record adds results to a batch, each line once. After an error none counts. After ErrUnavailable, call it again with the
// same results, and perhaps others. ErrFenced: another has the batch, or a line already has a result.
func (c *Claim) Record(results []Result) error {
	if err := c.record(results); err != nil {
		return fmt.Errorf("record %d lines of %s: %w", len(results), c.job.ID, err)
	}
	return nil
}

func (c *Claim) record(all []Result) error {
	if c.unsure && !c.ended {
		if err := c.rereadRecord(); err != nil {
			return err
		}
	}
	results, texts := c.unrecorded(all)
	n := int64(len(texts[0]) + len(texts[1]))
	if len(results) == 0 {
		return nil
	}
	if err := c.s.reserve(c.job.Owner, use{bytes: n}); err != nil {
		return err
	}
	made, err := c.writePieces(texts)
	if err == nil {
		err = c.Change(func(j *Job) error { return addResults(j, results, texts, made) })
	}
	switch {
	case err == nil:
		c.retried = false
	case errors.Is(err, ErrUnavailable) && c.unsure:
		c.s.release(c.job.Owner, use{bytes: n})
		c.retried, c.tails = true, [2][]byte{}
		return err
	default:
		c.s.release(c.job.Owner, use{bytes: n})
	}
	for k, m := range made {
		switch {
		case m.Name != "" && err != nil:
			c.s.forget(dataKey(c.job.Owner, c.job.ID, m.Name))
		case m.Name != "":
			if c.tails[k] = m.text; m.replaces != "" {
				c.s.forget(dataKey(c.job.Owner, c.job.ID, m.replaces))
			}
		}
	}
	return err
}

func (c *Claim) unrecorded(all []Result) (results []Result, texts [2][]byte) {
	for _, r := range all {
		if c.retried && c.job.lineDone(r.Line) { // under this epoch nobody else records lines
			c.s.release(c.job.Owner, use{bytes: -int64(len(r.Text))})
			continue
		}
		k := 1
		if r.OK {
			k = 0
		}
		results, texts[k] = append(results, r), append(texts[k], r.Text...)
	}
	return results, texts
}

type made struct {
	Piece
	text     []byte // nil: nothing may be appended
	replaces string // whose content it begins with
}

func (c *Claim) writePieces(texts [2][]byte) (all [2]made, err error) {
	for k, text := range texts {
		if len(text) == 0 {
			continue
		}
		var m made
		if n := len(c.job.Pieces[k]); n > 0 && len(c.tails[k]) > 0 && len(c.tails[k]) < c.s.cfg.Merge {
			m.replaces = c.job.Pieces[k][n-1].Name
			text = slices.Concat(c.tails[k], text)
		}
		c.pieces++
		m.Piece = Piece{Name: fmt.Sprintf("%s-%d-%d", [2]string{"out", "err"}[k], c.job.Epoch, c.pieces), Bytes: int64(len(text))}
		if len(text) < c.s.cfg.Merge {
			m.text = text
		}
		all[k] = m
		if err := c.s.write(dataKey(c.job.Owner, c.job.ID, m.Name), text); err != nil {
			return all, err
		}
	}
	return all, nil
}

func addResults(j *Job, results []Result, texts [2][]byte, made [2]made) error {
	if !j.Sealed.IsZero() || j.Done() {
		return ErrFenced
	}
	for _, r := range results {
		if j.lineDone(r.Line) {
			return ErrFenced
		}
		j.addResult(r)
	}
	for k, m := range made {
		if m.Name == "" {
			continue
		}
		if m.replaces != "" {
			j.Pieces[k] = j.Pieces[k][:len(j.Pieces[k])-1]
		}
		j.Pieces[k] = append(j.Pieces[k], m.Piece)
	}
	j.OutBytes += int64(len(texts[0]))
	j.ErrBytes += int64(len(texts[1]))
	return nil
}

// Finish ends a batch and creates its output files. It can be called again after an error.
func (c *Claim) Finish(status string, faults []Fault) error {
	if c.job.Done() && !c.unsure {
		return nil
	}
	err := c.Change(func(j *Job) error {
		if j.Sealed.IsZero() {
			j.Sealed, j.Outcome, j.Faults = time.Now(), status, faults
		}
		return nil
	})
	if err == nil {
		err = c.endBatch()
	}
	if err != nil {
		return fmt.Errorf("finish %s: %w", c.job.ID, err)
	}
	return nil
}

func (c *Claim) endBatch() error {
	for _, f := range c.job.outputs(c.s.cfg.Keep) {
		_, err := put(c.s, keyOf(kindFile, f.Owner, f.ID), Condition{Absent: true}, &f)
		switch {
		case err == nil: // its bytes were reserved with the results
			c.s.release(f.Owner, recordOf(f.ID, 0).times(-1))
		case !errors.Is(err, ErrChanged):
			return err
		}
	}
	err := c.Change(func(j *Job) error {
		j.Status = j.Outcome
		j.markEnded(j.Sealed, c.s.cfg.Keep)
		return nil
	})
	if err != nil {
		return err
	}
	c.forgetEnded()
	c.forgetPieces()
	return nil
}

func (j *Job) markEnded(at time.Time, keep time.Duration) {
	j.Ended, j.Expires, j.Holder = at, at.Add(keep), ""
}

func (c *Claim) forgetEnded() {
	_ = c.markLost()
	c.s.forgetHints(c.job.Owner, c.job.ID)
}

// forgetPieces deletes those of attempts that did not count.
func (c *Claim) forgetPieces() {
	s, j := c.s, c.job
	kept := map[string]bool{}
	for _, pieces := range j.Pieces {
		for _, p := range pieces {
			kept[dataKey(j.Owner, j.ID, p.Name)] = true
		}
	}
	all, err := s.objects.List(dataKey(j.Owner, j.ID, ""))
	if err != nil { // they stay as long as the batch
		return
	}
	for _, e := range all {
		if !kept[e.Key] {
			s.forget(e.Key)
		}
	}
}

// Answer ends a request. After an error there is no answer, unless it is ErrUnavailable: call it again.
func (c *Claim) Answer(code int, header http.Header, body []byte) error {
	return c.writeAnswer(body, func(j *Job) { j.Code, j.AnswerHeader = code, header })
}

func (c *Claim) writeAnswer(body []byte, do func(*Job)) error {
	if c.ended {
		return ErrFenced
	}
	owner, n := c.job.Owner, int64(len(body))
	if err := c.s.reserve(owner, use{bytes: n}); err != nil {
		return err
	}
	c.pieces++
	asked := c.job.Body
	out := Piece{Name: c.answerName(c.pieces), Bytes: n}
	err := c.s.writeBody(owner, c.job.ID, out, body)
	if err == nil {
		err = c.Change(func(j *Job) error {
			if j.Done() { // an earlier attempt has happened
				return errAnswered
			}
			do(j)
			j.Answer, j.Body = out, Piece{}
			j.markEnded(time.Now(), c.s.cfg.Keep)
			return nil
		})
	}
	if err != nil && !errors.Is(err, errAnswered) {
		c.s.release(owner, use{bytes: n})
		if errors.Is(err, ErrFenced) {
			c.s.forget(dataKey(owner, c.job.ID, out.Name))
		}
		return err
	}
	c.forgetEnded()
	c.s.forget(dataKey(owner, c.job.ID, asked.Name))
	for k := range c.pieces { // other attempts
		if name := c.answerName(k + 1); name != c.job.Answer.Name {
			c.s.forget(dataKey(owner, c.job.ID, name))
		}
	}
	c.s.release(owner, use{bytes: n + asked.Bytes - c.job.Answer.Bytes})
	return nil
}

func (c *Claim) answerName(attempt int) string {
	return fmt.Sprintf("out-%d-%d", c.job.Epoch, attempt)
}

var errAnswered = errors.New("the job has ended")
