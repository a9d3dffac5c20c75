package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/s3"
)

// Bucket keeps objects in an S3 bucket, for any number of processes. The service must support conditional writes; the first
// operation that it answers checks this. If a write may have happened, the object is read and compared.
type Bucket struct {
	cfg    Config
	prefix string
	bucket *s3.Bucket

	closing context.Context // of all requests; ended by Close
	close   context.CancelFunc
	silent  atomic.Bool // the service did not answer the last request
	checked Gate
}

// ParseURL parses s3://BUCKET/PREFIX.
func ParseURL(at string) (bucket, prefix string, err error) {
	rest, found := strings.CutPrefix(at, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	for part := range strings.SplitSeq(prefix, "/") {
		found = found && part != "." && part != ".." && (part != "" || prefix == "")
	}
	if !found || !IsName(bucket, ".-") || len(bucket) < 3 || len(bucket) > 63 || !IsName(prefix, "._-/") || len(prefix) > 256 {
		return "", "", fmt.Errorf("%.100q: want s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits, dots and dashes", at)
	}
	return bucket, prefix, nil
}

// IsName reports whether a text consists of ASCII letters, digits and others.
func IsName(text, others string) bool {
	for i := range len(text) {
		ch := text[i]
		if !('a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z' || '0' <= ch && ch <= '9' || strings.IndexByte(others, ch) >= 0) {
			return false
		}
	}
	return true
}

// OpenBucket sends no request.
func OpenBucket(cfg Config) (*Bucket, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	cfg.Try = cmp.Or(cfg.Try, 5*time.Second)
	name, prefix, err := ParseURL(cfg.At)
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		prefix += "/"
	}
	b := &Bucket{cfg: cfg, prefix: prefix, bucket: s3.NewBucket(cfg.S3, name)}
	b.closing, b.close = context.WithCancel(context.Background())
	b.silent.Store(true) // one attempt: a server without its service starts as fast
	return b, nil
}

// Close implements [Objects].
func (b *Bucket) Close() error {
	b.close()
	b.bucket.Close()
	return nil
}

// Shared implements [Objects].
func (b *Bucket) Shared() bool { return true }

// Room implements [Objects].
func (b *Bucket) Room(int64) error { return nil }

// ErrConditions means that a service has no conditional writes.
var ErrConditions = errors.New("it does not write under conditions (If-None-Match and If-Match of PutObject), without which two activators would overwrite each other's records")

func (b *Bucket) check() error {
	err := b.repeat(0, func(ctx context.Context, _ bool) error {
		key := b.prefix + "probe/" + rand.Text()
		err := b.conditions(ctx, key)
		if gone := b.bucket.Delete(ctx, key); err == nil {
			err = gone
		}
		return err
	})
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	as := " without credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE)"
	if c, err := b.cfg.S3.Credentials(); err == nil && c.AccessKeyID != "" {
		as = " with the access key " + c.AccessKeyID
	}
	return fmt.Errorf("the store %s can't be used%s: %w", b.cfg.At, as, err)
}

func (b *Bucket) conditions(ctx context.Context, key string) error {
	etag := ""
	for _, c := range []struct {
		when  s3.Condition
		holds bool
	}{{s3.Condition{None: true}, true}, {s3.Condition{None: true}, false}, {s3.Condition{ETag: `"00000000000000000000000000000000"`}, false}, {s3.Condition{}, true}, {s3.Condition{}, false}} {
		first := etag
		if c.when == (s3.Condition{}) {
			c.when.ETag = first
		}
		tag, err := b.bucket.Put(ctx, key, []byte(rand.Text()), c.when)
		var status *s3.StatusError
		switch {
		case err == nil && c.holds:
			if etag == "" {
				etag = tag
			}
		case err == nil, errors.As(err, &status) && status.Status == http.StatusNotImplemented, c.holds && errors.Is(err, s3.ErrCondition):
			return ErrConditions
		case !c.holds && errors.Is(err, s3.ErrCondition):
		default:
			return err
		}
	}
	return nil
}

// attemptBytes is the assumed least rate of transfers, in bytes per second.
const attemptBytes = 1 << 20

// In try, a refusal counts as unavailable until someone fixes it.
func (b *Bucket) try(bytes int64, do func(ctx context.Context, again bool) error) error {
	if err := b.checked.Pass(b.check); err != nil {
		return err
	}
	err := b.repeat(bytes, do)
	var status *s3.StatusError
	switch {
	case errors.Is(err, s3.ErrNotFound):
		return ErrNotFound
	case errors.As(err, &status) && !errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// repeat returns [ErrUnavailable] once no other attempt fits in [Config.Timeout].
func (b *Bucket) repeat(bytes int64, do func(ctx context.Context, again bool) error) error {
	each := b.cfg.Try + time.Duration(bytes/attemptBytes)*time.Second
	end := time.Now().Add(max(b.cfg.Timeout, each))
	if b.silent.Load() { // don't keep the caller waiting
		end = time.Now()
	}
	wait := 50 * time.Millisecond
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(b.closing, each)
		err := do(ctx, n > 0)
		cancel()
		if err == nil || lasting(err) {
			b.silent.Store(false)
			return err
		}
		if b.closing.Err() != nil || time.Now().Add(wait).After(end) {
			b.silent.Store(true)
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		_ = bell.Sleep(b.closing, wait/2+mrand.N(wait)) // the next attempt fails if b is closed
		wait = min(2*wait, 2*time.Second)
	}
}

func lasting(err error) bool {
	var status *s3.StatusError
	switch {
	case errors.Is(err, s3.ErrNotFound), errors.Is(err, ErrChanged), errors.Is(err, ErrConditions), errors.Is(err, errShort), errors.Is(err, errUnsure):
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

// Put implements [Objects].
func (b *Bucket) Put(key string, body []byte, when Condition) (version string, err error) {
	err = b.try(int64(len(body)), func(ctx context.Context, again bool) (err error) {
		version, err = b.bucket.Put(ctx, b.prefix+key, body, s3.Condition{None: when.Absent, ETag: when.Version})
		if !errors.Is(err, s3.ErrCondition) {
			return err
		}
		if !again {
			return ErrChanged
		}
		// The lost answer of an earlier attempt may have been a success, and others may have changed the object since.
		now, tag, err := b.read(ctx, key, 0, 0)
		if errors.Is(err, s3.ErrNotFound) || err == nil && !bytes.Equal(now, body) {
			return errUnsure
		}
		version = tag
		return err
	})
	return version, err
}

var errUnsure = fmt.Errorf("%w: the object was changed, perhaps by this write first", ErrUnavailable)

var errShort = errors.New("the object is too short")

func (b *Bucket) read(ctx context.Context, key string, from, n int64) (body []byte, version string, err error) {
	in, version, err := b.bucket.Get(ctx, b.prefix+key, from, n)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	body, err = io.ReadAll(in)
	if err == nil && n > 0 && int64(len(body)) != n {
		err = fmt.Errorf("%w: %s has %d bytes from %d on, want %d", errShort, key, len(body), from, n)
	}
	return body, version, err
}

// Get implements [Objects].
func (b *Bucket) Get(key string, from, n int64) (body []byte, version string, err error) {
	err = b.try(n, func(ctx context.Context, _ bool) (err error) {
		body, version, err = b.read(ctx, key, from, n)
		return err
	})
	return body, version, err
}

type stream struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (s *stream) Close() error {
	s.cancel()
	return s.ReadCloser.Close()
}

// Open implements [Objects]. Closing the bucket ends the stream.
func (b *Bucket) Open(key string, from int64) (in io.ReadCloser, err error) {
	err = b.try(0, func(attempt context.Context, _ bool) error {
		ctx, cancel := context.WithCancel(b.closing)
		begun := context.AfterFunc(attempt, cancel) // the body has no limit, but its beginning has
		body, _, err := b.bucket.Get(ctx, b.prefix+key, from, 0)
		begun()
		if err != nil {
			cancel()
			return err
		}
		in = &stream{ReadCloser: body, cancel: cancel}
		return nil
	})
	return in, err
}

// List implements [Objects].
func (b *Bucket) List(prefix string) (all []Entry, err error) {
	for token := ""; ; {
		err := b.try(0, func(ctx context.Context, _ bool) error {
			some, next, err := b.bucket.List(ctx, b.prefix+prefix, token)
			if err != nil {
				return err
			}
			for _, e := range some {
				all = append(all, Entry{Key: strings.TrimPrefix(e.Key, b.prefix), Size: e.Size, Version: e.ETag, Modified: e.Modified})
			}
			token = next
			return nil
		})
		if err != nil || token == "" {
			return all, err
		}
	}
}

// Delete implements [Objects].
func (b *Bucket) Delete(key string) error {
	return b.try(0, func(ctx context.Context, _ bool) error { return b.bucket.Delete(ctx, b.prefix+key) })
}

// Forget implements [Objects]. It tries once.
func (b *Bucket) Forget(key string) {
	ctx, cancel := context.WithTimeout(b.closing, b.cfg.Try)
	defer cancel()
	_ = b.bucket.Delete(ctx, b.prefix+key)
}
