package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Claim is the right to run a batch. It belongs to one goroutine.
type Claim struct {
	// Batch is its record as the claim knows it.
	Batch
	s     *Store
	parts [2]*os.File
}

// Claim gives a batch to who runs it from now on. done are the lines that are done. [Claim.Close] or [Claim.Finish] ends it.
func (s *Store) Claim(owner, id string) (c *Claim, done map[int]bool, err error) {
	b, err := change(s, bucketBatches, owner, id, func(b *Batch) error {
		if b.Ended() {
			return ErrState
		}
		b.Epoch++
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	c = &Claim{Batch: *b, s: s}
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

// lineKey is the key of a line of a batch that is done.
func lineKey(batch string, line int) []byte {
	return binary.BigEndian.AppendUint32([]byte(batch+"\x00"), uint32(line)) //nolint:gosec // lines are bounded
}

// Close ends the use of the claim; another may follow.
func (c *Claim) Close() {
	for k, f := range c.parts {
		if f != nil {
			_ = f.Close() // what counts is synced
		}
		c.parts[k] = nil
	}
}

// Change changes the batch's record. A batch whose cancellation was asked for meanwhile has that state before do.
func (c *Claim) Change(do func(*Batch)) error {
	return c.update(func(_ *bolt.Tx, b *Batch) error { do(b); return nil })
}

// update changes the record in a transaction that checks the epoch. After an error the claim knows what it knew.
func (c *Claim) update(do func(*bolt.Tx, *Batch) error) error {
	var b *Batch
	err := c.s.db.Update(func(tx *bolt.Tx) (err error) {
		if b, err = get[Batch](tx, bucketBatches, c.Owner, c.ID); errors.Is(err, ErrNotFound) {
			return ErrFenced
		} else if err != nil {
			return err
		}
		if b.Epoch != c.Epoch || b.Ended() {
			return ErrFenced
		}
		if err := do(tx, b); err != nil {
			return err
		}
		return put(tx, bucketBatches, c.Owner, c.ID, b)
	})
	if err == nil {
		c.Batch = *b
	}
	return full(err)
}

// Result is what became of a line.
type Result struct {
	// Line is its number, from 0.
	Line int
	// OK says that it was answered, with 2xx.
	OK bool
	// Text is its line in the output, or where it is not OK among the errors, with its end.
	Text   []byte
	Tokens Tokens
	// Abandoned says that it was not answered when the batch ended.
	Abandoned bool
}

// Record adds results. After nil all of them are there for good, each line once; after an error none is. ErrFenced: another has the batch,
// or a line has a result already.
func (c *Claim) Record(results []Result) error {
	var texts [2][]byte
	for _, r := range results {
		k := 1
		if r.OK {
			k = 0
		}
		texts[k] = append(texts[k], r.Text...)
	}
	n := int64(len(texts[0]) + len(texts[1]))
	if err := c.s.take(c.Owner, n); err != nil {
		return err
	}
	err := c.update(func(tx *bolt.Tx, b *Batch) error {
		if err := c.write(b, texts); err != nil {
			return err
		}
		return add(tx, b, results, texts)
	})
	if err != nil {
		c.s.count(c.Owner, -n)
		return fmt.Errorf("record %d lines of %s: %w", len(results), c.ID, err)
	}
	return nil
}

// write writes texts behind the committed ends of the parts. It is called in a transaction that has checked the epoch, so that no other claim writes there.
func (c *Claim) write(b *Batch, texts [2][]byte) error {
	for k, p := range b.parts() {
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

// add marks lines as done, and moves the ends of the parts behind their texts.
func add(tx *bolt.Tx, b *Batch, results []Result, texts [2][]byte) error {
	lines := tx.Bucket(bucketLines)
	for _, r := range results {
		k, v := lineKey(b.ID, r.Line), []byte{0}
		if lines.Get(k) != nil {
			return ErrFenced
		}
		if r.OK {
			v[0] = 1
			b.Completed++
		} else {
			b.Failed++
			if r.Abandoned {
				b.Abandoned++
			}
		}
		if err := lines.Put(k, v); err != nil {
			return err
		}
		b.Tokens.Input += r.Tokens.Input
		b.Tokens.Cached += r.Tokens.Cached
		b.Tokens.Output += r.Tokens.Output
		b.Tokens.Reasoning += r.Tokens.Reasoning
	}
	b.OutBytes += int64(len(texts[0]))
	b.ErrBytes += int64(len(texts[1]))
	return nil
}

// Finish ends the batch with a status and makes files of its output. It can be called again after an error.
func (c *Claim) Finish(status string, faults []Fault) error {
	defer c.Close()
	now := time.Now()
	return c.update(func(tx *bolt.Tx, b *Batch) error {
		for _, p := range b.parts() {
			if err := c.publish(p); err != nil {
				return fmt.Errorf("finish %s: %w", c.ID, err)
			}
		}
		keep := c.s.cfg.Keep
		if b.KeepOutput > 0 {
			keep = min(keep, b.KeepOutput)
		}
		for _, p := range b.parts() {
			if *p.bytes == 0 {
				continue
			}
			f := File{ID: p.file, Owner: b.Owner, Name: p.name, Purpose: b.purpose(), Bytes: *p.bytes, Created: now, Expires: now.Add(keep)}
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

// publish puts the committed part of an output in its place. It may have been done before.
func (c *Claim) publish(p part) error {
	from := c.s.path(p.path)
	if *p.bytes == 0 {
		_ = os.Remove(from) // there may be none
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
