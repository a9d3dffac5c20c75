package folder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Config is a store's configuration.
type Config struct {
	// Dir is its folder, which is created if missing.
	Dir string
	store.Limits
	// Spare is the free disk space that bodies leave for records. Default 64 MiB.
	Spare int64
	// Wait is how long to wait for another process that is about to close the store. Default 2 s.
	Wait time.Duration
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.WithDefaults()
	c.Spare = cmp.Or(c.Spare, 64<<20)
	c.Wait = cmp.Or(c.Wait, 2*time.Second)
	return c
}

// The database's buckets. The key of a record is its owner, a zero byte and its id.
var (
	bucketFiles   = []byte("files")
	bucketBatches = []byte("batches")
	bucketLater   = []byte("later")
	bucketLines   = []byte("lines") // of running batches: batch id, line number → 1 if it was answered, 0 if it failed

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
	ids  store.IDs
	room *store.Room
}

// Open opens the store of a folder, which no other process may have open. It removes half-written data.
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
	s := &Store{cfg: cfg, db: db, room: store.NewRoom(cfg.Limits)}
	if err := s.repair(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store %s: %w", cfg.Dir, err), db.Close())
	}
	return s, nil
}

// Close implements [store.Store].
func (s *Store) Close() error { return s.db.Close() }

// repair counts the owners' use, and removes bodies without records.
func (s *Store) repair() error {
	known := map[string]bool{} // paths relative to Dir
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketFiles, bucketBatches, bucketLater, bucketLines, bucketResponses} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return errors.Join(
			each(tx, bucketFiles, func(f *store.File) { known[filepath.Join(dirFiles, f.ID)] = true; s.room.Count(f.Owner, f.Bytes) }),
			each(tx, bucketBatches, func(b *store.Batch) {
				if b.Ended() {
					return
				}
				for _, p := range parts(b) {
					known[p.path], known[filepath.Join(dirFiles, p.file)] = true, true
				}
				s.room.Count(b.Owner, b.OutBytes+b.ErrBytes)
			}),
			each(tx, bucketLater, func(l *store.Later) {
				known[in(l)], known[out(l)] = !l.Done(), l.Done()
				s.room.Count(l.Owner, l.Bytes)
			}),
			each(tx, bucketResponses, func(r *store.Response) {
				known[place(r)] = true
				s.room.Count(r.Owner, bytesOf(r))
				s.room.CountResponses(r.Owner, 1)
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

// Bytes implements [store.Store].
func (s *Store) Bytes() int64 { return s.room.Bytes() }

// take adds n bytes to an owner's use, or returns why it can't.
func (s *Store) take(owner string, n int64) error {
	if left, known := free(s.cfg.Dir); known && left < n+s.cfg.Spare {
		return fmt.Errorf("%w: the disk has no room left", store.ErrFull)
	}
	return s.room.Take(owner, n)
}

// Fits implements [store.Store].
func (s *Store) Fits(owner string, n int64) error {
	if err := s.take(owner, n); err != nil {
		return err
	}
	s.room.Count(owner, -n)
	return s.room.TakeResponses(owner, 0)
}

// Watch implements [store.Store]: it reports all unfinished work at once. No other process can claim it or add more.
func (s *Store) Watch(ctx context.Context, tell func(store.News)) error {
	var news store.News
	err := s.db.View(func(tx *bolt.Tx) error {
		return errors.Join(
			each(tx, bucketBatches, func(b *store.Batch) {
				if !b.Ended() {
					news.Batches = append(news.Batches, store.Ref{Owner: b.Owner, ID: b.ID})
				}
			}),
			each(tx, bucketLater, func(l *store.Later) {
				if !l.Done() {
					news.Laters = append(news.Laters, store.Ref{Owner: l.Owner, ID: l.ID})
				}
			}))
	})
	if err != nil {
		return fmt.Errorf("read what is in the store: %w", err)
	}
	tell(news)
	<-ctx.Done()
	return nil
}

// key returns the key of a record. Clients' ids may be anything: they are only compared.
func key(owner, id string) []byte { return []byte(owner + "\x00" + id) }

func get[T any](tx *bolt.Tx, bucket []byte, owner, id string) (*T, error) {
	raw := tx.Bucket(bucket).Get(key(owner, id))
	if raw == nil {
		return nil, store.ErrNotFound
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", id, err)
	}
	return v, nil
}

func put[T any](tx *bolt.Tx, bucket []byte, owner, id string, v *T) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put(key(owner, id), raw)
}

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

// one reads a record in its own transaction.
func one[T any](s *Store, bucket []byte, owner, id string) (v *T, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		v, err = get[T](tx, bucket, owner, id)
		return err
	})
	return v, err
}

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

// list returns an owner's matching records. more reports whether others follow. An After that does not exist is
// ErrNotFound.
func list[T any](s *Store, bucket []byte, owner string, q store.Query, match func(*T) bool) (all []T, more bool, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		c, prefix := tx.Bucket(bucket).Cursor(), string(key(owner, ""))
		next := c.Prev
		var k, raw []byte
		switch {
		case q.After != "":
			if k, _ = c.Seek(key(owner, q.After)); string(k) != string(key(owner, q.After)) {
				return store.ErrNotFound
			}
			if q.Oldest {
				next = c.Next
			}
			k, raw = next()
		case q.Oldest:
			next = c.Next
			k, raw = c.Seek([]byte(prefix))
		default: // the last key before the next owner's
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
