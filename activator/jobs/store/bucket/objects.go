package bucket

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/s3"
)

// ownerKey returns the part of a key for an owner.
func ownerKey(owner string) string {
	var k strings.Builder
	for i := range len(owner) {
		if ch := owner[i]; isName(string(rune(ch)), "_-") && ch < 0x80 {
			k.WriteByte(ch)
		} else {
			fmt.Fprintf(&k, "=%02x", ch)
		}
	}
	switch {
	case k.Len() == 0:
		return "="
	case k.Len() > 200: // some services store a part of a key as a file name
		sum := sha256.Sum256([]byte(owner))
		return "==" + hex.EncodeToString(sum[:])
	}
	return k.String()
}

// isID reports whether an id may be one of ours. Others are not looked up.
func isID(id string) bool { return id != "" && len(id) <= 100 && isName(id, "_-") }

// The kinds of records: the first part of their keys.
const (
	kindFile     = "files"
	kindBatch    = "batches"
	kindLater    = "later"
	kindResponse = "responses"
)

// The kinds of hints.
const (
	openBatch = "batch"
	openLater = "later"
)

func keyOf(kind, owner, id string) string { return kind + "/" + ownerKey(owner) + "/" + id }

func dataKey(owner, id, name string) string { return "data/" + ownerKey(owner) + "/" + id + "/" + name }

// errConflict is the error of a change whose record was changed meanwhile, or does not exist.
var errConflict = errors.New("the record was changed meanwhile")

// stamped is a record as it is stored: Write is unique to each write.
type stamped[T any] struct {
	Write  string
	Record T
}

// attemptBytes is the assumed minimum rate of transfers, in bytes per second.
const attemptBytes = 1 << 20

// try repeats an operation that transfers so many bytes, as long as another attempt may help, for up to
// [Config.Timeout]. Then the error is [store.ErrUnavailable]. again is false for the first attempt.
func (s *Store) try(bytes int64, do func(ctx context.Context, again bool) error) error {
	each := s.cfg.Try + time.Duration(bytes/attemptBytes)*time.Second
	end := time.Now().Add(max(s.cfg.Timeout, each))
	if s.silent.Load() { // it did not answer a moment ago: don't keep the caller waiting
		end = time.Now()
	}
	wait := 50 * time.Millisecond
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(s.closing, each)
		err := do(ctx, n > 0)
		cancel()
		if err == nil || lasting(err) {
			s.silent.Store(false)
			return err
		}
		if s.closing.Err() != nil || time.Now().Add(wait).After(end) {
			s.silent.Store(true)
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
		jitter, _ := rand.Int(rand.Reader, big.NewInt(int64(wait))) // never fails
		t := time.NewTimer(wait/2 + time.Duration(jitter.Int64()))
		select {
		case <-t.C:
		case <-s.closing.Done():
			t.Stop()
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// lasting reports whether an error is permanent.
func lasting(err error) bool {
	var status *s3.StatusError
	switch {
	case errors.Is(err, s3.ErrNotFound), errors.Is(err, s3.ErrCondition), errors.Is(err, errConflict), errors.Is(err, errConditions):
		return true
	case errors.As(err, &status):
		switch status.Status {
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
			return false
		}
		return status.Status < http.StatusInternalServerError || status.Status == http.StatusNotImplemented
	}
	var missing *s3.NoProfileError
	return errors.As(err, &missing)
}

// later converts an error of an opened store: a refusal counts as unavailable until someone fixes it.
func later(err error) error {
	var status *s3.StatusError
	if errors.As(err, &status) && !errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// load reads n bytes of an object from an offset; n 0: up to its end. expect is the expected size.
func (s *Store) load(key string, from, n, expect int64) (raw []byte, etag string, err error) {
	err = s.try(expect, func(ctx context.Context, _ bool) error {
		body, tag, err := s.bucket.Get(ctx, s.cfg.Prefix+key, from, n)
		if err != nil {
			return err
		}
		defer body.Close()
		etag = tag
		raw, err = io.ReadAll(body)
		return err
	})
	if errors.Is(err, s3.ErrNotFound) {
		err = store.ErrNotFound
	}
	return raw, etag, later(err)
}

// write writes an object with a unique name.
func (s *Store) write(key string, body []byte) error {
	return later(s.try(int64(len(body)), func(ctx context.Context, _ bool) error {
		_, err := s.bucket.Put(ctx, s.cfg.Prefix+key, body, s3.Condition{})
		return err
	}))
}

func (s *Store) remove(key string) error {
	return later(s.try(0, func(ctx context.Context, _ bool) error { return s.bucket.Delete(ctx, s.cfg.Prefix+key) }))
}

// forget deletes objects that no longer count. A survey deletes those that remain.
func (s *Store) forget(keys ...string) {
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(s.closing, s.cfg.Try)
		if err := s.bucket.Delete(ctx, s.cfg.Prefix+key); err != nil {
			s.log.Debug("an object stays until the next survey", "key", key, "error", err)
		}
		cancel()
	}
}

// list returns all objects with a prefix, without the store's own prefix in their keys.
func (s *Store) list(prefix string) (all []s3.Entry, err error) {
	for token := ""; ; {
		err := s.try(0, func(ctx context.Context, _ bool) error {
			some, next, err := s.bucket.List(ctx, s.cfg.Prefix+prefix, token)
			if err != nil {
				return err
			}
			for _, e := range some {
				e.Key = strings.TrimPrefix(e.Key, s.cfg.Prefix)
				all = append(all, e)
			}
			token = next
			return nil
		})
		if err != nil || token == "" {
			return all, later(err)
		}
	}
}

func read[T any](s *Store, key string) (v *T, etag string, err error) {
	raw, etag, err := s.load(key, 0, 0, 0)
	if err != nil {
		return nil, "", err
	}
	r := new(stamped[T])
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, "", fmt.Errorf("read the record %s: %w", key, err)
	}
	return &r.Record, etag, nil
}

// find reads an owner's record by an unchecked id.
func find[T any](s *Store, kind, owner, id string) (v *T, etag string, err error) {
	if !isID(id) {
		return nil, "", store.ErrNotFound
	}
	if err := s.prepare(); err != nil {
		return nil, "", err
	}
	return read[T](s, keyOf(kind, owner, id))
}

// put writes a record on a condition. errConflict: the condition does not hold. ErrUnavailable: it may have been
// written.
func put[T any](s *Store, key string, when s3.Condition, v *T) (etag string, err error) {
	r := stamped[T]{Write: rand.Text(), Record: *v}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	err = s.try(int64(len(raw)), func(ctx context.Context, again bool) error {
		tag, err := s.bucket.Put(ctx, s.cfg.Prefix+key, raw, when)
		etag = tag
		if !errors.Is(err, s3.ErrCondition) {
			return err
		}
		if !again {
			return errConflict
		}
		// An earlier attempt, whose answer was lost, may have written it.
		body, tag, err := s.bucket.Get(ctx, s.cfg.Prefix+key, 0, 0)
		if errors.Is(err, s3.ErrNotFound) {
			return errConflict
		} else if err != nil {
			return err
		}
		defer body.Close()
		var now stamped[json.RawMessage]
		text, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &now); err != nil || now.Write != r.Write {
			return errConflict
		}
		etag = tag
		return nil
	})
	return etag, later(err)
}

// create creates a record. errConflict: it exists.
func create[T any](s *Store, key string, v *T) (etag string, err error) {
	return put(s, key, s3.Condition{None: true}, v)
}

// mostConflicts bounds how often a change is retried because others were faster.
const mostConflicts = 20

// change changes a record. It returns an error of do unchanged.
func change[T any](s *Store, key string, do func(*T) error) (v *T, etag string, err error) {
	for range mostConflicts {
		v, etag, err := read[T](s, key)
		if err != nil {
			return nil, "", err
		}
		if err := do(v); err != nil {
			return v, etag, err
		}
		if etag, err = put(s, key, s3.Condition{ETag: etag}, v); !errors.Is(err, errConflict) {
			return v, etag, err
		}
	}
	return nil, "", fmt.Errorf("%w: the record %s is changed all the time", store.ErrUnavailable, key)
}
