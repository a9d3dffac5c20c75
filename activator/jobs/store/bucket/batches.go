package bucket

import (
	"errors"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

type batchRecord struct {
	store.Batch
	Holder string // the member that has claimed it; empty: none
	Done   []byte // a bit for each line that is done
	// Pieces are the pieces of its output and of its errors.
	Pieces [2][]piece
	Sealed *sealed // set once nothing more is recorded
}

// sealed is the end of a batch.
type sealed struct {
	Status string
	Faults []store.Fault
	At     time.Time
}

func (b *batchRecord) done(line int) bool {
	return line/8 < len(b.Done) && b.Done[line/8]&(1<<(line%8)) != 0
}

func (b *batchRecord) mark(line int) {
	if grow := line/8 + 1 - len(b.Done); grow > 0 {
		b.Done = append(b.Done, make([]byte, grow)...)
	}
	b.Done[line/8] |= 1 << (line % 8)
}

func (b *batchRecord) clone() *batchRecord {
	c := *b
	c.Done = slices.Clone(b.Done)
	for k := range b.Pieces {
		c.Pieces[k] = slices.Clone(b.Pieces[k])
	}
	return &c
}

// outputs returns the two files that a batch creates.
func (b *batchRecord) outputs() [2]fileRecord {
	file := func(id, name string, bytes int64, k int) fileRecord {
		f := fileRecord{File: store.File{ID: id, Owner: b.Owner, Name: b.ID + name, Purpose: b.Purpose(), Bytes: bytes}, Of: b.ID, Pieces: b.Pieces[k]}
		if b.Sealed != nil {
			f.Created = b.Sealed.At
		}
		return f
	}
	return [2]fileRecord{file(b.OutID, "_output.jsonl", b.OutBytes, 0), file(b.ErrID, "_error.jsonl", b.ErrBytes, 1)}
}

// NewBatch implements [store.Batches].
func (s *Store) NewBatch(b store.Batch, window time.Duration) (store.Batch, error) {
	if _, err := s.file(b.Owner, b.Input); err != nil {
		return b, err
	}
	b.ID, b.Created = s.ids.New(b.Prefix())
	b.OutID, _ = s.ids.New("file-")
	b.ErrID, _ = s.ids.New("file-")
	b.Status, b.Expires = store.Validating, b.Created.Add(window)
	if err := s.write(hintKey(openBatch, b.Owner, b.ID, firstHint), nil); err != nil {
		return b, err
	}
	_, err := create(s, keyOf(kindBatch, b.Owner, b.ID), &batchRecord{Batch: b})
	if err != nil { // it may exist, but no one knows its id
		s.forget(keyOf(kindBatch, b.Owner, b.ID), hintKey(openBatch, b.Owner, b.ID, firstHint))
	}
	return b, err
}

// Batch implements [store.Batches].
func (s *Store) Batch(owner, id string) (store.Batch, error) {
	b, _, err := find[batchRecord](s, kindBatch, owner, id)
	if err != nil {
		return store.Batch{}, err
	}
	return b.Batch, nil
}

// Batches implements [store.Batches].
func (s *Store) Batches(owner string, messages bool, q store.Query) ([]store.Batch, bool, error) {
	all, more, err := page[batchRecord](s, keyOf(kindBatch, owner, ""), (&store.Batch{Messages: messages}).Prefix(), q, nil)
	batches := make([]store.Batch, len(all))
	for k, b := range all {
		batches[k] = b.Batch
	}
	return batches, more, err
}

// CancelBatch implements [store.Batches]. The member that runs it learns of it at the next poll.
func (s *Store) CancelBatch(owner, id string) (store.Batch, error) {
	if _, err := s.Batch(owner, id); err != nil {
		return store.Batch{}, err
	}
	b, _, err := change(s, keyOf(kindBatch, owner, id), func(b *batchRecord) error {
		if b.Sealed != nil {
			return store.ErrState
		}
		return b.AskCancel(time.Now())
	})
	if err == nil {
		err = s.write(hintKey(openBatch, owner, id, cancelHint), nil)
	}
	if b == nil {
		return store.Batch{}, err
	}
	return b.Batch, err
}

// DeleteBatch implements [store.Batches].
func (s *Store) DeleteBatch(owner, id string) error {
	b, _, err := find[batchRecord](s, kindBatch, owner, id)
	switch {
	case err != nil:
		return err
	case !b.Ended():
		return store.ErrState
	}
	if err := s.remove(keyOf(kindBatch, owner, id)); err != nil {
		return err
	}
	for _, f := range b.outputs() {
		if f.Bytes == 0 {
			continue
		}
		if err := s.DeleteFile(owner, f.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
