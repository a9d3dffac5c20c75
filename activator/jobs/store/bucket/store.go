package bucket

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/s3"
)

// Config is a store's configuration. Zero fields have the defaults that they name.
type Config struct {
	// Service is the S3 service, Bucket the bucket's name, and Prefix the prefix of keys; may be empty.
	Service        s3.Service
	Bucket, Prefix string
	store.Limits
	// Timeout bounds an operation with its retries, and Try each attempt, without the transfer of bodies. Default 15
	// s and 5 s.
	Timeout, Try time.Duration
	// Poll is the interval of polling for work, and of beats. Default 5 s.
	Poll time.Duration
	// Lease is how long a member may go without a beat before others take over its claims. Default 30 s.
	Lease time.Duration
	// Survey is the interval of counting everything and deleting what has expired. Default 10 min.
	Survey time.Duration
	// Piece is the size of a file's pieces, and Merge the size from which results begin a new piece. Default 4 MiB
	// and 512 KiB.
	Piece, Merge int
	// Logger may be nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.WithDefaults()
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.Try = cmp.Or(c.Try, 5*time.Second)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Survey = cmp.Or(c.Survey, 10*time.Minute)
	c.Piece = cmp.Or(c.Piece, 4<<20)
	c.Merge = cmp.Or(c.Merge, 512<<10)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		c.Prefix += "/"
	}
	return c
}

// ParseURL parses s3://BUCKET/PREFIX.
func ParseURL(at string) (bucket, prefix string, err error) {
	rest, found := strings.CutPrefix(at, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	for part := range strings.SplitSeq(prefix, "/") {
		found = found && part != "." && part != ".." && (part != "" || prefix == "")
	}
	if !found || !isName(bucket, ".-") || len(bucket) < 3 || len(bucket) > 63 || !isName(prefix, "._-/") || len(prefix) > 256 {
		return "", "", fmt.Errorf("%.100q: want s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits, dots and dashes", at)
	}
	return bucket, prefix, nil
}

// isName reports whether a text consists of ASCII letters, digits and others.
func isName(text, others string) bool {
	for i := range len(text) {
		ch := text[i]
		if !('a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z' || '0' <= ch && ch <= '9' || strings.IndexByte(others, ch) >= 0) {
			return false
		}
	}
	return true
}

// Store is an open store.
type Store struct {
	cfg    Config
	bucket *s3.Bucket
	member string // this process's name in the store
	ids    store.IDs
	room   *store.Room
	log    *slog.Logger

	closing context.Context // of all requests; ended by Close
	close   context.CancelFunc

	ready  gate
	joined gate
	silent atomic.Bool // the service did not answer the last request

	mu       sync.Mutex           // guards the fields below
	held     map[string]hold      // the claims of this member, by id
	members  map[string]beat      // as last seen, by name
	seen     map[string]time.Time // when work without a holder was first seen, by id
	looked   time.Time            // when members were last read
	surveyed time.Time
	expiries map[string]expiry // of files, by key, so that each is read once
}

// hold is a claim of this member.
type hold struct {
	kind, owner string
	epoch       uint64
}

// beat is a member's last beat.
type beat struct {
	etag  string
	since time.Time // when this etag was first seen
}

// gate is an action that is retried until it has succeeded once.
type gate struct {
	mu    sync.Mutex // guards the fields below; held during an attempt
	open  bool
	tried time.Time
	err   error
}

// retryGate is the interval between attempts at a gate.
const retryGate = time.Second

// pass runs try unless it has succeeded before, and returns its error. Within a second of a failed attempt, callers
// get that attempt's error.
func (g *gate) pass(try func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		return nil
	}
	if g.err != nil && time.Since(g.tried) < retryGate {
		return g.err
	}
	g.err = try()
	g.open, g.tried = g.err == nil, time.Now()
	return g.err
}

// Open opens the store. It fails if the service answers that the bucket can't be used: the bucket is missing, access
// is refused, or conditional writes are not supported. If the service does not answer, Open succeeds, and operations
// return [store.ErrUnavailable] until it does.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	limits := cfg.Limits
	limits.Shared = ownerKey(limits.Shared)
	if cfg.Limits.Shared == "" {
		limits.Shared = ""
	}
	s := &Store{cfg: cfg, bucket: s3.NewBucket(cfg.Service, cfg.Bucket), member: strings.ToLower(rand.Text()), room: store.NewRoom(limits), log: cfg.Logger,
		held: map[string]hold{}, members: map[string]beat{}, seen: map[string]time.Time{}, expiries: map[string]expiry{}}
	s.closing, s.close = context.WithCancel(context.Background())
	s.silent.Store(true) // one attempt: a server without its service starts as fast
	err := s.prepare()
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		s.close()
		s.bucket.Close()
		return nil, err
	} else if err != nil {
		s.log.Warn("the store does not answer: requests that need it are refused until it does", "error", err)
	}
	return s, nil
}

// prepare checks the bucket, once it answers.
func (s *Store) prepare() error {
	return s.ready.pass(func() error {
		err := s.probe()
		if err == nil {
			err = s.recount()
		}
		if errors.Is(err, store.ErrUnavailable) {
			return err
		} else if err != nil {
			return fmt.Errorf("the store s3://%s/%s can't be used%s: %w", s.cfg.Bucket, s.cfg.Prefix, s.as(), err)
		}
		return nil
	})
}

// as describes the identity used for the service.
func (s *Store) as() string {
	c, err := s.cfg.Service.Credentials()
	if err != nil || c.AccessKeyID == "" {
		return " without credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE)"
	}
	return " with the access key " + c.AccessKeyID
}

// format is the content of the format object.
type format struct {
	Version int
}

const thisFormat = 1

// errConditions is the error for a service without conditional writes.
var errConditions = errors.New("it does not write under conditions (If-None-Match and If-Match of PutObject), without which two activators would overwrite each other's records")

// probe tests the conditions on an object of its own, and reads or creates the format.
func (s *Store) probe() error {
	err := s.try(0, func(ctx context.Context, _ bool) error {
		key := s.cfg.Prefix + "probe/" + rand.Text()
		err := s.conditions(ctx, key)
		if gone := s.bucket.Delete(ctx, key); err == nil {
			err = gone
		}
		return err
	})
	if err != nil {
		return err
	}
	f, _, err := read[format](s, "format")
	if errors.Is(err, store.ErrNotFound) {
		if _, err = create(s, "format", &format{Version: thisFormat}); errors.Is(err, errConflict) {
			f, _, err = read[format](s, "format")
		}
	}
	if err == nil && f != nil && f.Version != thisFormat {
		err = fmt.Errorf("another version of Rouse has made it: it has the format %d, want %d", f.Version, thisFormat)
	}
	return err
}

// conditions writes an object under conditions that hold and others that fail.
func (s *Store) conditions(ctx context.Context, key string) error {
	etag := ""
	for _, c := range []struct {
		when  s3.Condition
		holds bool
	}{{s3.Condition{None: true}, true}, {s3.Condition{None: true}, false}, {s3.Condition{ETag: `"00000000000000000000000000000000"`}, false}, {s3.Condition{}, true}, {s3.Condition{}, false}} {
		first := etag
		if c.when == (s3.Condition{}) {
			c.when.ETag = first
		}
		tag, err := s.bucket.Put(ctx, key, []byte(rand.Text()), c.when)
		var status *s3.StatusError
		switch {
		case err == nil && c.holds:
			if etag == "" {
				etag = tag
			}
		case err == nil, errors.As(err, &status) && status.Status == http.StatusNotImplemented, c.holds && errors.Is(err, s3.ErrCondition):
			return errConditions
		case !c.holds && errors.Is(err, s3.ErrCondition):
		default:
			return err
		}
	}
	return nil
}

// Bytes implements [store.Store].
func (s *Store) Bytes() int64 { return s.room.Bytes() }

// Fits implements [store.Store].
func (s *Store) Fits(owner string, n int64) error {
	if err := s.prepare(); err != nil {
		return err
	}
	return s.room.Fits(ownerKey(owner), n)
}

// Close implements [store.Store]. Others may take over this member's claims at once.
func (s *Store) Close() error {
	s.joined.mu.Lock()
	joined := s.joined.open
	s.joined.mu.Unlock()
	if joined {
		s.forget("members/" + s.member)
	}
	s.close()
	s.bucket.Close()
	return nil
}
