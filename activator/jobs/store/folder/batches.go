package folder

import (
	"errors"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// part is a growing output of a batch.
type part struct {
	path  string // relative to the store's folder
	file  string // the id of the resulting file
	name  string // the name of that file
	bytes *int64
}

func parts(b *store.Batch) [2]part {
	return [2]part{
		{filepath.Join(dirParts, b.ID+".out"), b.OutID, b.ID + "_output.jsonl", &b.OutBytes},
		{filepath.Join(dirParts, b.ID+".err"), b.ErrID, b.ID + "_error.jsonl", &b.ErrBytes},
	}
}

// NewBatch implements [store.Batches].
func (s *Store) NewBatch(b store.Batch, window time.Duration) (store.Batch, error) {
	b.ID, b.Created = s.ids.New(b.Prefix())
	b.OutID, _ = s.ids.New("file-")
	b.ErrID, _ = s.ids.New("file-")
	b.Status, b.Expires = store.Validating, b.Created.Add(window)
	err := s.db.Update(func(tx *bolt.Tx) error {
		if _, err := get[store.File](tx, bucketFiles, b.Owner, b.Input); err != nil {
			return err
		}
		return put(tx, bucketBatches, b.Owner, b.ID, &b)
	})
	return b, full(err)
}

// Batch implements [store.Batches].
func (s *Store) Batch(owner, id string) (store.Batch, error) {
	b, err := one[store.Batch](s, bucketBatches, owner, id)
	if err != nil {
		return store.Batch{}, err
	}
	return *b, nil
}

// Batches implements [store.Batches].
func (s *Store) Batches(owner string, messages bool, q store.Query) ([]store.Batch, bool, error) {
	return list(s, bucketBatches, owner, q, func(b *store.Batch) bool { return b.Messages == messages })
}

// DeleteBatch implements [store.Batches].
func (s *Store) DeleteBatch(owner, id string) error {
	var b *store.Batch
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if b, err = get[store.Batch](tx, bucketBatches, owner, id); err != nil {
			return err
		}
		if !b.Ended() {
			return store.ErrState
		}
		return tx.Bucket(bucketBatches).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	for _, file := range []string{b.OutID, b.ErrID} {
		if err := s.DeleteFile(owner, file); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// CancelBatch implements [store.Batches].
func (s *Store) CancelBatch(owner, id string) (store.Batch, error) {
	b, err := change(s, bucketBatches, owner, id, func(b *store.Batch) error { return b.AskCancel(time.Now()) })
	if b == nil {
		b = &store.Batch{}
	}
	return *b, err
}
