package store

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/internal/s3"
)

var (
	ErrNotFound    = errors.New("there is no such thing")
	ErrFull        = errors.New("the store is full")
	ErrUnavailable = errors.New("the store does not answer")
	ErrChanged     = errors.New("the object was changed meanwhile")
	// ErrFenced means that another claim has followed, or that the object is gone.
	ErrFenced = errors.New("the claim does not count any more")
	ErrInUse  = errors.New("it is in use")
	ErrState  = errors.New("it has ended")
	ErrHeld   = errors.New("another has claimed it")
)

// Passing reports whether an error may go away.
func Passing(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable) }

// Config configures a store. Zero fields have their defaults.
type Config struct {
	// At is a folder, for one server, or s3://BUCKET/PREFIX, for any number; empty: none.
	At string
	Limits
	// Wait is for a process that is about to close the folder. Default 2 s.
	Wait time.Duration
	// Spare is the disk space that bodies leave for records. Default 64 MiB.
	Spare int64
	S3    s3.Service
	// Timeout bounds an operation of a bucket, Try each attempt, without the transfer of bodies. Default 15 s and 5 s.
	Timeout, Try time.Duration
	// Poll is the interval of looking for work, and of beats. Default 5 s.
	Poll time.Duration
	// Lease is how long a member without a beat keeps its claims. Default 30 s.
	Lease time.Duration
	// Survey is the interval of sweeps. Default 10 min.
	Survey time.Duration
	// Piece is the size of a file's pieces; results begin a new one at Merge bytes. Default 4 MiB, and 512 KiB in a bucket,
	// 64 KiB in a folder.
	Piece, Merge int
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.Wait = cmp.Or(c.Wait, 2*time.Second)
	c.Spare = cmp.Or(c.Spare, 64<<20)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Survey = cmp.Or(c.Survey, 10*time.Minute)
	c.Piece = cmp.Or(c.Piece, 4<<20)
	if c.Merge == 0 {
		c.Merge = 64 << 10
		if c.Shared() {
			c.Merge = 512 << 10
		}
	}
	return c
}

// Shared reports whether several servers can use the store.
func (c Config) Shared() bool { return strings.HasPrefix(c.At, "s3://") }

const gather = 2 * time.Second

// Gather is how long results may wait for others: recording them in a bucket takes requests.
func (c Config) Gather() time.Duration {
	if c.Shared() {
		return gather
	}
	return 0
}

// Validate returns an error for an invalid location.
func (c Config) Validate() error {
	if c.Shared() {
		_, _, err := ParseURL(c.At)
		return err
	}
	if scheme, _, found := strings.Cut(c.At, "://"); found {
		return fmt.Errorf("%.20q is no kind of store: want a folder, or s3://BUCKET/PREFIX", scheme)
	}
	return nil
}

// Store is an open store.
type Store struct {
	cfg     Config
	objects Objects
	members members
	ids     ids
	room    *room
	log     *slog.Logger
	ready   Gate

	mu       sync.Mutex // guards the fields below
	surveyed time.Time
	expiries map[string]expiry // of files, by key
}

// Open fails if a bucket can't be used. If the service does not answer, it succeeds, and methods return [ErrUnavailable]
// until it does. log may be nil.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var in Objects
	var err error
	if cfg.Shared() {
		in, err = OpenBucket(cfg)
	} else {
		in, err = OpenFolder(cfg.At, cfg.Wait, cfg.Spare)
	}
	if err != nil {
		return nil, err
	}
	return OpenIn(in, cfg, log)
}

// OpenIn opens the store in some objects, which it closes.
func OpenIn(in Objects, cfg Config, log *slog.Logger) (*Store, error) {
	cfg = cfg.withDefaults()
	if cfg.Limits.Shared != "" {
		cfg.Limits.Shared = ownerKey(cfg.Limits.Shared)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, objects: in, room: &room{limits: cfg.Limits, used: map[string]use{}}, log: log, expiries: map[string]expiry{},
		members: members{objects: in, own: strings.ToLower(rand.Text()), lease: cfg.Lease, poll: cfg.Poll, held: map[string]hold{}, seen: map[string]time.Time{}}}
	if err := s.prepare(); errors.Is(err, ErrUnavailable) {
		s.log.Warn("the store does not answer: requests that need it are refused until it does", "error", err)
	} else if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return s, nil
}

type format struct {
	Version int
}

const thisFormat = 2

// prepare reads or creates the format, and counts what is there.
func (s *Store) prepare() error {
	return s.ready.Pass(func() error {
		f, _, err := read[format](s, "format")
		if errors.Is(err, ErrNotFound) {
			f = &format{Version: thisFormat}
			if _, err = put(s, "format", Condition{Absent: true}, f); errors.Is(err, ErrChanged) {
				f, _, err = read[format](s, "format")
			}
		}
		if err == nil && f.Version != thisFormat {
			err = fmt.Errorf("open the store %s: another version of Rouse has made it: it has the format %d, want %d", s.cfg.At, f.Version, thisFormat)
		}
		if err != nil {
			return err
		}
		all, err := s.survey()
		if err != nil {
			return err
		}
		s.room.set(all.used)
		if !s.objects.Shared() { // an earlier process's
			s.sweepOrphans(all, 0)
		}
		return nil
	})
}

// Bytes returns the size of all bodies and records.
func (s *Store) Bytes() int64 { return s.room.bytes() }

func (s *Store) reserve(owner string, u use) error {
	if err := s.objects.Room(u.bytes); err != nil {
		return err
	}
	return s.room.reserve(ownerKey(owner), u)
}

func (s *Store) release(owner string, u use) { s.room.add(ownerKey(owner), u.times(-1)) }

// Fits returns why n more bytes of an owner's, and so many responses, can't be stored.
func (s *Store) Fits(owner string, n int64, responses int) error {
	u := recordOf(PrefixResponse, 0).times(responses)
	u.bytes += n
	err := s.prepare()
	if err == nil {
		err = s.reserve(owner, u)
	}
	if err == nil {
		s.release(owner, u)
	}
	return err
}

// Close closes the store, for good. Others may take this member's claims at once.
func (s *Store) Close() error {
	if s.members.joined.Open() {
		s.forget("members/" + s.members.own)
	}
	return s.objects.Close()
}

func ownerKey(owner string) string {
	var k strings.Builder
	long := 0 // objects may store an upper-case letter as two
	for i := range len(owner) {
		switch ch := owner[i]; {
		case ch >= 0x80 || !IsName(string(rune(ch)), "_-"):
			fmt.Fprintf(&k, "=%02x", ch)
		case 'A' <= ch && ch <= 'Z':
			long++
			fallthrough
		default:
			k.WriteByte(ch)
		}
	}
	switch {
	case k.Len() == 0:
		return "="
	case k.Len()+long > 200: // objects may store a part of a key as a file name
		sum := sha256.Sum256([]byte(owner))
		return "==" + hex.EncodeToString(sum[:])
	}
	return k.String()
}

func isID(id string) bool { return id != "" && len(id) <= 100 && IsName(id, "_-") }

const (
	kindFile = "files"
	kindJob  = "jobs"
)

func keyOf(kind, owner, id string) string { return kind + "/" + ownerKey(owner) + "/" + id }

func dataKey(owner, id, name string) string { return keyOf("data", owner, id) + "/" + name }

// Write is unique: a repeated write is recognised.
type stamped[T any] struct {
	Write  string
	Record T
}

func (s *Store) forget(keys ...string) {
	for _, key := range keys {
		s.objects.Forget(key)
	}
}

func read[T any](s *Store, key string) (v *T, version string, err error) {
	raw, version, err := s.objects.Get(key, 0, 0)
	if err != nil {
		return nil, "", err
	}
	r := new(stamped[T])
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, "", fmt.Errorf("read the record %s: %w", key, err)
	}
	return &r.Record, version, nil
}

// find takes an unchecked id.
func find[T any](s *Store, kind, owner, id string) (v *T, version string, err error) {
	if !isID(id) {
		return nil, "", ErrNotFound
	}
	if err := s.prepare(); err != nil {
		return nil, "", err
	}
	return read[T](s, keyOf(kind, owner, id))
}

func put[T any](s *Store, key string, when Condition, v *T) (version string, err error) {
	raw, err := json.Marshal(stamped[T]{Write: rand.Text(), Record: *v})
	if err != nil {
		return "", err
	}
	return s.objects.Put(key, raw, when)
}

func (s *Store) write(key string, body []byte) error {
	_, err := s.objects.Put(key, body, Condition{})
	return err
}

const mostConflicts = 20

// changeJob returns an error of do unchanged, with the job.
func (s *Store) changeJob(owner, id string, do func(*Job) error) (j *Job, version string, err error) {
	for range mostConflicts {
		j, version, err := find[Job](s, kindJob, owner, id)
		if err != nil {
			return nil, "", err
		}
		if err := do(j); err != nil {
			return j, version, err
		}
		if version, err = put(s, keyOf(kindJob, owner, id), Condition{Version: version}, j); !errors.Is(err, ErrChanged) {
			return j, version, err
		}
	}
	return nil, "", changing(id)
}

func changing(id string) error {
	return fmt.Errorf("%w: the record of %s is changed all the time", ErrUnavailable, id)
}
