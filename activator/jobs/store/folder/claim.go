package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Claim is the right to run a batch. It belongs to one goroutine.
type Claim struct {
	batch store.Batch // as known to the claim
	s     *Store
	parts [2]*os.File
}

// Claim implements [store.Batches].
func (s *Store) Claim(owner, id string) (_ store.Claim, done map[int]bool, err error) {
	b, err := change(s, bucketBatches, owner, id, func(b *store.Batch) error {
		if b.Ended() {
			return store.ErrState
		}
		b.Epoch++
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	c := &Claim{batch: *b, s: s}
	done = map[int]bool{}
	err = s.db.View(func(tx *bolt.Tx) error {
		prefix := lineKey(b.ID, 0)
		prefix = prefix[:len(prefix)-4]
		cur := tx.Bucket(bucketLines).Cursor()
		for k, _ := cur.Seek(prefix); len(k) == len(prefix)+4 && string(k[:len(prefix)]) == string(prefix); k, _ = cur.Next() {
			done[int(binary.BigEndian.Uint32(k[len(prefix):]))] = true
		}
		return nil
	})
	return c, done, err
}

// lineKey returns the key of a line that is done.
func lineKey(batch string, line int) []byte {
	return binary.BigEndian.AppendUint32([]byte(batch+"\x00"), uint32(line)) //nolint:gosec // lines are bounded
}

// Batch implements [store.Claim].
func (c *Claim) Batch() store.Batch { return c.batch }

// Close implements [store.Claim].
func (c *Claim) Close() {
	for k, f := range c.parts {
		if f != nil {
			_ = f.Close() // committed data is synced
		}
		c.parts[k] = nil
	}
}

// Change implements [store.Claim].
func (c *Claim) Change(do func(*store.Batch)) error {
	return c.update(func(_ *bolt.Tx, b *store.Batch) error { do(b); return nil })
}

// update changes the record in a transaction that checks the epoch. After an error the claim's copy is unchanged.
func (c *Claim) update(do func(*bolt.Tx, *store.Batch) error) error {
	var b *store.Batch
	err := c.s.db.Update(func(tx *bolt.Tx) (err error) {
		if b, err = get[store.Batch](tx, bucketBatches, c.batch.Owner, c.batch.ID); errors.Is(err, store.ErrNotFound) {
			return store.ErrFenced
		} else if err != nil {
			return err
		}
		if b.Epoch != c.batch.Epoch || b.Ended() {
			return store.ErrFenced
		}
		if err := do(tx, b); err != nil {
			return err
		}
		return put(tx, bucketBatches, c.batch.Owner, c.batch.ID, b)
	})
	if err == nil {
		c.batch = *b
	}
	return full(err)
}

// Record implements [store.Claim].
func (c *Claim) Record(results []store.Result) error {
	var texts [2][]byte
	for _, r := range results {
		k := 1
		if r.OK {
			k = 0
		}
		texts[k] = append(texts[k], r.Text...)
	}
	n := int64(len(texts[0]) + len(texts[1]))
	if err := c.s.take(c.batch.Owner, n); err != nil {
		return err
	}
	err := c.update(func(tx *bolt.Tx, b *store.Batch) error {
		if err := c.write(b, texts); err != nil {
			return err
		}
		return add(tx, b, results, texts)
	})
	if err != nil {
		c.s.room.Count(c.batch.Owner, -n)
		return fmt.Errorf("record %d lines of %s: %w", len(results), c.batch.ID, err)
	}
	return nil
}

// write writes texts after the committed ends of the parts. It is called in a transaction that has checked the epoch,
// so that no other claim writes there.
func (c *Claim) write(b *store.Batch, texts [2][]byte) error {
	for k, p := range parts(b) {
		if len(texts[k]) == 0 {
			continue
		}
		if c.parts[k] == nil {
			f, err := os.OpenFile(c.s.path(p.path), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return full(err)
			}
			c.parts[k] = f
			if err := syncDir(c.s.path(dirParts)); err != nil {
				return full(err)
			}
		}
		if _, err := c.parts[k].WriteAt(texts[k], *p.bytes); err != nil {
			return full(err)
		}
		if err := c.parts[k].Sync(); err != nil {
			return full(err)
		}
	}
	return nil
}

// add marks lines as done, and moves the ends of the parts past their texts.
func add(tx *bolt.Tx, b *store.Batch, results []store.Result, texts [2][]byte) error {
	lines := tx.Bucket(bucketLines)
	for _, r := range results {
		k, v := lineKey(b.ID, r.Line), []byte{0}
		if lines.Get(k) != nil {
			return store.ErrFenced
		}
		if r.OK {
			v[0] = 1
		}
		if err := lines.Put(k, v); err != nil {
			return err
		}
		b.Add(r)
	}
	b.OutBytes += int64(len(texts[0]))
	b.ErrBytes += int64(len(texts[1]))
	return nil
}

// Finish implements [store.Claim].
func (c *Claim) Finish(status string, faults []store.Fault) error {
	defer c.Close()
	now := time.Now()
	return c.update(func(tx *bolt.Tx, b *store.Batch) error {
		for _, p := range parts(b) {
			if err := c.publish(p); err != nil {
				return fmt.Errorf("finish %s: %w", c.batch.ID, err)
			}
		}
		for _, p := range parts(b) {
			if *p.bytes == 0 {
				continue
			}
			f := store.File{ID: p.file, Owner: b.Owner, Name: p.name, Purpose: b.Purpose(), Bytes: *p.bytes, Created: now, Expires: b.Expiry(now, c.s.cfg.Keep)}
			if err := put(tx, bucketFiles, f.Owner, f.ID, &f); err != nil {
				return err
			}
		}
		lines := tx.Bucket(bucketLines)
		prefix := b.ID + "\x00"
		cur := lines.Cursor()
		for k, _ := cur.Seek([]byte(prefix)); len(k) > len(prefix) && string(k[:len(prefix)]) == prefix; k, _ = cur.Seek([]byte(prefix)) {
			if err := lines.Delete(k); err != nil {
				return err
			}
		}
		b.Status, b.Ended_, b.Faults = status, now, faults
		return nil
	})
}

// publish moves the committed part of an output into its place. It may have been done before.
func (c *Claim) publish(p part) error {
	from := c.s.path(p.path)
	if *p.bytes == 0 {
		_ = os.Remove(from) // it may not exist
		return nil
	}
	err := os.Truncate(from, *p.bytes)
	if errors.Is(err, os.ErrNotExist) {
		info, err := os.Stat(c.s.path(filepath.Join(dirFiles, p.file)))
		if err == nil && info.Size() != *p.bytes {
			err = fmt.Errorf("%s has %d bytes, want %d", info.Name(), info.Size(), *p.bytes)
		}
		return err
	} else if err != nil {
		return full(err)
	}
	f, err := os.OpenFile(from, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return full(err)
	}
	return c.s.rename(from, filepath.Join(dirFiles, p.file))
}
