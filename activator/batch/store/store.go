package store

import (
	"cmp"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	crand "crypto/rand"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Config says where a store is, and how much it takes.
type Config struct {
	// Dir is its folder, which is made where there is none.
	Dir string
	// MaxBytes bounds all bodies together. Default 10 GiB. One owner has at most half of it, but for the one of everybody.
	MaxBytes int64
	// Spare is what bodies leave free on the disk, for records. Default 64 MiB.
	Spare int64
	// Keep is how long something is kept, from its end, unless its client says less. Default 30 days.
	Keep time.Duration
	// MaxResponses bounds the responses of one owner. Default 100,000.
	MaxResponses int
	// Wait is how long another process may hold the store while it ends. Default 2 s.
	Wait time.Duration
	// Shared is the owner whose things are everybody's; empty: there is none.
	Shared string
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 10<<30)
	c.Spare = cmp.Or(c.Spare, 64<<20)
	c.Keep = cmp.Or(c.Keep, 30*24*time.Hour)
	c.Wait = cmp.Or(c.Wait, 2*time.Second)
	c.MaxResponses = cmp.Or(c.MaxResponses, 100_000)
	return c
}

// What callers tell apart.
var (
	ErrNotFound = errors.New("there is no such thing")
	// ErrFull is the error where [Config.MaxBytes] or the disk is used up.
	ErrFull = errors.New("the store is full")
	// ErrFenced is the error of a claim that another has followed, or whose thing is gone.
	ErrFenced = errors.New("the claim does not count any more")
	// ErrInUse is the error of deleting what a batch still reads.
	ErrInUse = errors.New("it is in use")
	// ErrState is the error of what can't be done to a thing in its state.
	ErrState = errors.New("it has ended")
)

// Buckets of the database. The key of a record is its owner, a zero byte and its id.
var (
	bucketFiles   = []byte("files")
	bucketBatches = []byte("batches")
	bucketLater   = []byte("later")
	bucketLines   = []byte("lines") // of batches that run: id of the batch, number of the line → 1 if it was answered, 0 if it failed

	bucketResponses = []byte("responses")
)

// Folders.
const (
	dirFiles = "files"
	dirParts = "parts"
	dirLater = "later"

	dirResponses = "responses"
	dirTmp       = "tmp"
)

// Store is an open store.
type Store struct {
	cfg  Config
	db   *bolt.DB
	last atomic.Int64 // of the times in ids, in nanoseconds

	mu   sync.Mutex       // guards what follows
	used map[string]int64 // bytes of bodies, by owner
	all  int64

	responses map[string]int // by owner
}

// Open opens the store of a folder, which no other process has open. What was half written is removed.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	for _, dir := range []string{"", dirFiles, dirParts, dirLater, dirResponses, dirTmp} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("open the store: %w", err)
		}
	}
	db, err := bolt.Open(filepath.Join(cfg.Dir, "store.db"), 0o600, &bolt.Options{Timeout: cfg.Wait, FreelistType: bolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open the store: another server uses %s", cfg.Dir)
	} else if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", cfg.Dir, full(err))
	}
	s := &Store{cfg: cfg, db: db, used: map[string]int64{}, responses: map[string]int{}}
	if err := s.repair(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store %s: %w", cfg.Dir, err), db.Close())
	}
	return s, nil
}

// Close ends the use of the store. Nothing may be called afterwards.
func (s *Store) Close() error { return s.db.Close() }

// repair counts what there is, and removes bodies that no record has.
func (s *Store) repair() error {
	known := map[string]bool{} // paths below Dir
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketFiles, bucketBatches, bucketLater, bucketLines, bucketResponses} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return errors.Join(
			each(tx, bucketFiles, func(f *File) { known[filepath.Join(dirFiles, f.ID)] = true; s.count(f.Owner, f.Bytes) }),
			each(tx, bucketBatches, func(b *Batch) {
				if b.Ended() {
					return
				}
				for _, p := range b.parts() {
					known[p.path], known[filepath.Join(dirFiles, p.file)] = true, true
				}
				s.count(b.Owner, b.OutBytes+b.ErrBytes)
			}),
			each(tx, bucketLater, func(l *Later) {
				known[l.in()], known[l.out()] = !l.Done(), l.Done()
				s.count(l.Owner, l.Bytes)
			}),
			each(tx, bucketResponses, func(r *Response) {
				known[r.place()] = true
				s.count(r.Owner, r.bytes())
				s.responses[r.Owner]++
			}),
		)
	})
	if err != nil {
		return full(err)
	}
	for _, dir := range []string{dirTmp, dirFiles, dirParts, dirLater, dirResponses} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if name := filepath.Join(dir, e.Name()); !known[name] {
				if err := os.RemoveAll(s.path(name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// Bytes is what all bodies take.
func (s *Store) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// count adds to what an owner has, without a limit.
func (s *Store) count(owner string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += n
	if s.used[owner] += n; s.used[owner] <= 0 {
		delete(s.used, owner)
	}
}

// take adds to what an owner has, or says why it can't.
func (s *Store) take(owner string, n int64) error {
	if left, known := free(s.cfg.Dir); known && left < n+s.cfg.Spare {
		return fmt.Errorf("%w: the disk has no room left", ErrFull)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all+n > s.cfg.MaxBytes:
		return fmt.Errorf("%w: all files together may take %d bytes: delete some, or wait until they expire", ErrFull, s.cfg.MaxBytes)
	case owner != s.cfg.Shared && s.used[owner]+n > s.cfg.MaxBytes/2:
		return fmt.Errorf("%w for this tenant: its files may take %d bytes: delete some, or wait until they expire", ErrFull, s.cfg.MaxBytes/2)
	}
	s.all += n
	s.used[owner] += n
	return nil
}

// ids are written with an alphabet that keeps their order: so records of an owner lie in the order in which they came.
var ids = base32.HexEncoding.WithPadding(base32.NoPadding)

// newID is an id that nobody can guess, and its time. Ids of a store grow.
func (s *Store) newID(prefix string) (string, time.Time) {
	now := time.Now()
	for {
		last := s.last.Load()
		next := max(last+1, now.UnixNano())
		if s.last.CompareAndSwap(last, next) {
			var at [8]byte
			binary.BigEndian.PutUint64(at[:], uint64(next)) //nolint:gosec // it is after 1970
			return prefix + strings.ToLower(ids.EncodeToString(at[:])) + strings.ToLower(crand.Text()), now
		}
	}
}

// key is that of a record. Ids of clients may be anything: they are only compared.
func key(owner, id string) []byte { return []byte(owner + "\x00" + id) }

// get reads a record.
func get[T any](tx *bolt.Tx, bucket []byte, owner, id string) (*T, error) {
	raw := tx.Bucket(bucket).Get(key(owner, id))
	if raw == nil {
		return nil, ErrNotFound
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", id, err)
	}
	return v, nil
}

// put writes a record.
func put[T any](tx *bolt.Tx, bucket []byte, owner, id string, v *T) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put(key(owner, id), raw)
}

// each calls do for all records.
func each[T any](tx *bolt.Tx, bucket []byte, do func(*T)) error {
	return tx.Bucket(bucket).ForEach(func(k, raw []byte) error {
		v := new(T)
		if err := json.Unmarshal(raw, v); err != nil {
			return fmt.Errorf("read the record of %q: %w", k, err)
		}
		do(v)
		return nil
	})
}

// one reads a record in a transaction of its own.
func one[T any](s *Store, bucket []byte, owner, id string) (v *T, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		v, err = get[T](tx, bucket, owner, id)
		return err
	})
	return v, err
}

// change changes a record.
func change[T any](s *Store, bucket []byte, owner, id string, do func(*T) error) (v *T, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		if v, err = get[T](tx, bucket, owner, id); err != nil {
			return err
		}
		if err = do(v); err != nil {
			return err
		}
		return put(tx, bucket, owner, id, v)
	})
	return v, full(err)
}

// Query says which part of a list is wanted.
type Query struct {
	// After is the id of the last one that was seen; empty: from the beginning.
	After string
	// Limit is how many.
	Limit int
	// Oldest has the oldest ones first; else the newest are.
	Oldest bool
}

// list reads records of an owner that match. more says whether there are others behind them. An After that is not there is ErrNotFound.
func list[T any](s *Store, bucket []byte, owner string, q Query, match func(*T) bool) (all []T, more bool, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		c, prefix := tx.Bucket(bucket).Cursor(), string(key(owner, ""))
		next := c.Prev
		var k, raw []byte
		switch {
		case q.After != "":
			if k, _ = c.Seek(key(owner, q.After)); string(k) != string(key(owner, q.After)) {
				return ErrNotFound
			}
			if q.Oldest {
				next = c.Next
			}
			k, raw = next()
		case q.Oldest:
			next = c.Next
			k, raw = c.Seek([]byte(prefix))
		default: // the last one before what comes after the owner's
			if k, _ = c.Seek([]byte(owner + "\x01")); k == nil {
				k, raw = c.Last()
			} else {
				k, raw = c.Prev()
			}
		}
		for ; k != nil && strings.HasPrefix(string(k), prefix); k, raw = next() {
			v := new(T)
			if err := json.Unmarshal(raw, v); err != nil {
				return fmt.Errorf("read the record of %q: %w", k, err)
			}
			if match != nil && !match(v) {
				continue
			}
			if len(all) == q.Limit {
				more = true
				return nil
			}
			all = append(all, *v)
		}
		return nil
	})
	return all, more, err
}
