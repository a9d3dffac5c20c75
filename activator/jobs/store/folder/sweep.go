package folder

import (
	"errors"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Sweep implements [store.Store].
func (s *Store) Sweep(now time.Time) (n int, err error) {
	var files []*store.File
	var batches []*store.Batch
	var laters []*store.Later
	err = s.db.View(func(tx *bolt.Tx) error {
		return errors.Join(
			each(tx, bucketFiles, func(f *store.File) {
				if !now.Before(f.Expires) && !reads(tx, f.Owner, f.ID) {
					files = append(files, f)
				}
			}),
			each(tx, bucketBatches, func(b *store.Batch) {
				if b.Ended() && now.Sub(b.Ended_) >= s.cfg.Keep {
					batches = append(batches, b)
				}
			}),
			each(tx, bucketLater, func(l *store.Later) {
				if l.Done() && !now.Before(l.Expires) {
					laters = append(laters, l)
				}
			}))
	})
	forget := func(e error) {
		switch {
		case e == nil:
			n++
		case !errors.Is(e, store.ErrNotFound) && !errors.Is(e, store.ErrInUse):
			err = errors.Join(err, e)
		}
	}
	for _, f := range files {
		forget(s.DeleteFile(f.Owner, f.ID))
	}
	for _, b := range batches {
		forget(s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketBatches).Delete(key(b.Owner, b.ID)) }))
	}
	for _, l := range laters {
		forget(s.DeleteLater(l.Owner, l.ID))
	}
	responses, e := s.sweepResponses(now)
	return n + responses, errors.Join(err, e)
}
