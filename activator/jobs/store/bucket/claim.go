package bucket

import (
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/s3"
)

// claim is the right to run a batch.
type claim struct {
	s      *Store
	rec    *batchRecord // as known to the claim
	etag   string       // of the record
	unsure bool         // a write of it, by this claim or another, may have happened
	ended  bool         // the batch has ended, or another claim has followed

	pieces  int          // the number of pieces that this claim has begun
	tails   [2][]byte    // the content of the last pieces, if they are this claim's
	waiting *unsureLines // of the last write, if it is unsure
	written map[int]bool // lines of unsure writes that turned out to have happened
}

// unsureLines are lines whose write may have happened.
type unsureLines struct {
	lines []int
	bytes int64
}

// Claim implements [store.Batches].
func (s *Store) Claim(owner, id string) (store.Claim, map[int]bool, error) {
	if _, err := s.Batch(owner, id); err != nil {
		return nil, nil, err
	}
	if err := s.join(); err != nil {
		return nil, nil, err
	}
	before := ""
	b, etag, err := change(s, keyOf(kindBatch, owner, id), func(b *batchRecord) error {
		if b.Ended() {
			return store.ErrState
		}
		if err := s.mayClaim(b.Holder); err != nil {
			return err
		}
		before = claimHint(b.Epoch, b.Holder)
		b.Epoch++
		b.Holder = s.member
		return nil
	})
	if errors.Is(err, store.ErrState) {
		s.forgetHints(openBatch, owner, id) // the member that ended it may not have deleted them
	}
	if err != nil {
		return nil, nil, err
	}
	c := &claim{s: s, rec: b, etag: etag, written: map[int]bool{}}
	s.hold(openBatch, owner, id, b.Epoch, before)
	if b.Sealed != nil {
		defer c.Close()
		if err := c.end(); err != nil {
			return nil, nil, err
		}
		return nil, nil, store.ErrState
	}
	done := map[int]bool{}
	for line := range 8 * len(b.Done) {
		if b.done(line) {
			done[line] = true
		}
	}
	return c, done, nil
}

// Batch implements [store.Claim].
func (c *claim) Batch() store.Batch { return c.rec.Batch }

// Close implements [store.Claim].
func (c *claim) Close() {
	if c.ended {
		return
	}
	c.ended = true
	c.tails = [2][]byte{}
	c.s.drop(c.rec.ID)
	next := c.rec.clone()
	next.Holder = ""
	if !c.unsure { // otherwise others notice when this member is gone, and this one at its next poll
		if _, err := put(c.s, c.key(), s3.Condition{ETag: c.etag}, next); err == nil {
			c.s.release(openBatch, next.Owner, next.ID, next.Epoch)
		}
	}
}

func (c *claim) key() string { return keyOf(kindBatch, c.rec.Owner, c.rec.ID) }

// lost ends a claim that another claim has followed.
func (c *claim) lost() error {
	c.ended = true
	c.s.drop(c.rec.ID)
	return store.ErrFenced
}

func (c *claim) refresh() error {
	b, etag, err := read[batchRecord](c.s, c.key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.lost()
	case err != nil:
		return err
	case b.Epoch != c.rec.Epoch || b.Holder != c.s.member && !b.Ended():
		return c.lost()
	}
	c.rec, c.etag, c.unsure = b, etag, false
	if w := c.waiting; w != nil {
		c.waiting = nil
		if len(w.lines) > 0 && b.done(w.lines[0]) {
			for _, line := range w.lines {
				c.written[line] = true
			}
		} else {
			c.s.room.Count(ownerKey(b.Owner), -w.bytes)
		}
	}
	return nil
}

// update changes the record under the claim's epoch. After an error the claim's copy is unchanged, or is read again
// before the next change.
func (c *claim) update(do func(*batchRecord) error) error {
	if c.ended {
		return store.ErrFenced
	}
	for range mostConflicts {
		if c.unsure {
			if err := c.refresh(); err != nil {
				return err
			}
		}
		next := c.rec.clone()
		if err := do(next); err != nil {
			return err
		}
		etag, err := put(c.s, c.key(), s3.Condition{ETag: c.etag}, next)
		if err == nil {
			c.rec, c.etag = next, etag
			return nil
		}
		if c.unsure = true; !errors.Is(err, errConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: the record of %s is changed all the time", store.ErrUnavailable, c.rec.ID)
}

// Change implements [store.Claim].
func (c *claim) Change(do func(*store.Batch)) error {
	return c.update(func(b *batchRecord) error {
		if b.Ended() {
			return c.lost()
		}
		do(&b.Batch)
		return nil
	})
}

// Record implements [store.Claim].
func (c *claim) Record(results []store.Result) error {
	if err := c.record(results); err != nil {
		return fmt.Errorf("record %d lines of %s: %w", len(results), c.rec.ID, err)
	}
	return nil
}

func (c *claim) record(all []store.Result) error {
	if c.unsure && !c.ended {
		if err := c.refresh(); err != nil {
			return err
		}
	}
	results, texts := c.missing(all)
	n := int64(len(texts[0]) + len(texts[1]))
	if len(results) == 0 {
		return nil
	}
	owner := ownerKey(c.rec.Owner)
	if err := c.s.room.Take(owner, n); err != nil {
		return err
	}
	made, err := c.write(texts)
	if err == nil {
		err = c.update(func(b *batchRecord) error { return add(b, results, texts, made) })
	}
	if errors.Is(err, store.ErrUnavailable) && c.unsure {
		c.waiting = &unsureLines{bytes: n}
		for _, r := range results {
			c.waiting.lines = append(c.waiting.lines, r.Line)
		}
		c.tails = [2][]byte{}
		return err
	}
	if err != nil {
		c.s.room.Count(owner, -n)
	}
	for k, m := range made {
		switch {
		case m.Name != "" && err != nil:
			c.s.forget(dataKey(c.rec.Owner, c.rec.ID, m.Name))
		case m.Name != "":
			if c.tails[k] = m.text; m.replaces != "" {
				c.s.forget(dataKey(c.rec.Owner, c.rec.ID, m.replaces))
			}
		}
	}
	return err
}

// missing returns the results that no unsure write has recorded yet, and their texts for both files.
func (c *claim) missing(all []store.Result) (results []store.Result, texts [2][]byte) {
	for _, r := range all {
		if c.written[r.Line] {
			delete(c.written, r.Line)
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

// made is a piece that was written and is in no record yet.
type made struct {
	piece
	text     []byte // the piece's content, if more may be appended
	replaces string // the piece whose content it begins with; empty: none
}

// write writes texts as pieces; a small last piece is rewritten with the text appended.
func (c *claim) write(texts [2][]byte) (all [2]made, err error) {
	for k, text := range texts {
		if len(text) == 0 {
			continue
		}
		var m made
		if n := len(c.rec.Pieces[k]); n > 0 && len(c.tails[k]) > 0 && len(c.tails[k]) < c.s.cfg.Merge {
			m.replaces = c.rec.Pieces[k][n-1].Name
			text = append(append(make([]byte, 0, len(c.tails[k])+len(text)), c.tails[k]...), text...)
		}
		c.pieces++
		m.piece = piece{Name: fmt.Sprintf("%s-%d-%d", [2]string{"out", "err"}[k], c.rec.Epoch, c.pieces), Bytes: int64(len(text))}
		if len(text) < c.s.cfg.Merge {
			m.text = text
		}
		all[k] = m
		if err := c.s.write(dataKey(c.rec.Owner, c.rec.ID, m.Name), text); err != nil {
			return all, err
		}
	}
	return all, nil
}

// add marks lines as done, and adds their pieces.
func add(b *batchRecord, results []store.Result, texts [2][]byte, made [2]made) error {
	if b.Sealed != nil || b.Ended() {
		return store.ErrFenced
	}
	for _, r := range results {
		if b.done(r.Line) {
			return store.ErrFenced
		}
		b.mark(r.Line)
		b.Add(r)
	}
	for k, m := range made {
		if m.Name == "" {
			continue
		}
		if m.replaces != "" {
			b.Pieces[k] = b.Pieces[k][:len(b.Pieces[k])-1]
		}
		b.Pieces[k] = append(b.Pieces[k], m.piece)
	}
	b.OutBytes += int64(len(texts[0]))
	b.ErrBytes += int64(len(texts[1]))
	return nil
}

// Finish implements [store.Claim].
func (c *claim) Finish(status string, faults []store.Fault) error {
	if c.rec.Ended() && !c.unsure {
		return nil
	}
	err := c.update(func(b *batchRecord) error {
		if b.Sealed == nil {
			b.Sealed = &sealed{Status: status, Faults: faults, At: time.Now()}
		}
		return nil
	})
	if err == nil {
		err = c.end()
	}
	if err != nil {
		return fmt.Errorf("finish %s: %w", c.rec.ID, err)
	}
	return nil
}

// end ends a batch that is sealed.
func (c *claim) end() error {
	for _, f := range c.rec.outputs() {
		if f.Bytes == 0 {
			continue
		}
		f.Expires = c.rec.Expiry(f.Created, c.s.cfg.Keep)
		if _, err := create(c.s, keyOf(kindFile, f.Owner, f.ID), &f); err != nil && !errors.Is(err, errConflict) {
			return err
		}
	}
	err := c.update(func(b *batchRecord) error {
		b.Status, b.Faults, b.Ended_, b.Holder = b.Sealed.Status, b.Sealed.Faults, b.Sealed.At, ""
		return nil
	})
	if err != nil {
		return err
	}
	c.ended = true
	c.s.drop(c.rec.ID)
	c.s.forgetHints(openBatch, c.rec.Owner, c.rec.ID)
	c.s.forgetPieces(c.rec)
	return nil
}

// forgetPieces deletes a batch's unused pieces: those of attempts that did not count.
func (s *Store) forgetPieces(b *batchRecord) {
	kept := map[string]bool{}
	for _, pieces := range b.Pieces {
		for _, p := range pieces {
			kept[dataKey(b.Owner, b.ID, p.Name)] = true
		}
	}
	all, err := s.list(dataKey(b.Owner, b.ID, ""))
	if err != nil { // a survey deletes them
		return
	}
	for _, e := range all {
		if !kept[e.Key] {
			s.forget(e.Key)
		}
	}
}
