package flight

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/internal/bell"
)

// Config says where a record goes and bounds its cost.
type Config struct {
	// Folder is created if missing. Empty: nothing is recorded.
	Folder string
	// MostBytes bounds all segments together. Default 50 MB.
	MostBytes int64
	// MostAge bounds a segment. Default 4 h.
	MostAge time.Duration
	Version string
}

const (
	DefaultMostBytes = 50_000_000
	defaultMostAge   = 4 * time.Hour
)

func (c Config) withDefaults() Config {
	c.MostBytes = cmp.Or(c.MostBytes, DefaultMostBytes)
	c.MostAge = cmp.Or(c.MostAge, defaultMostAge)
	return c
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	if c.MostBytes < 0 || c.MostBytes > 0 && c.MostBytes < LeastBytes {
		return fmt.Errorf("record: want at least %d bytes, have %d", LeastBytes, c.MostBytes)
	}
	if c.MostAge < 0 {
		return fmt.Errorf("record: want an age of at least 0, have %s", c.MostAge)
	}
	return nil
}

const (
	LeastBytes = 1 << 20 // the minimum of [Config].MostBytes
	segments   = 12      // that share the bytes
	mostBuffer = 16 << 20
	mostShare  = 0.01        // of a core, for recording
	burst      = time.Minute // the period whose time may be spent in advance
	largeChunk = 64 << 10
	flushEvery = time.Second
	retryAfter = time.Minute
)

// Ended is why a segment ended with its program.
const Ended = "the program ended"

// Recorder writes a record. The package comment says which goroutine may call which method.
type Recorder struct {
	cfg  Config
	run  string
	log  *slog.Logger
	bell bell.Bell

	// Used only by the owner of the state:
	on    bool          // rounds are recorded
	lines []byte        // the current round's
	spent time.Duration // for this round
	wrong error         // why this round can't be encoded

	mu       sync.Mutex // guards all below
	queue    []step
	waiting  int  // bytes in queue
	open     bool // a segment is open
	follows  bool // the next segment begins where the one before ended
	began    time.Time
	zone     int
	rotate   bool          // the segment is full
	pausedAt time.Time     // zero: recording goes on
	pause    time.Duration // from pausedAt on
	used     time.Duration // of the allowed time
	since    time.Time     // of used
	cost     time.Duration // in all
}

type step struct {
	begin  *Header
	state  any // with begin, like finish
	finish func()
	rounds []byte
	end    bool
	why    string
}

// New returns a recorder and starts nothing.
func New(cfg Config, log *slog.Logger) *Recorder {
	return &Recorder{cfg: cfg.withDefaults(), run: rand.Text()[:8], log: log, bell: bell.New()}
}

// Due reports whether the caller must begin a segment at now. It ends the previous one.
func (r *Recorder) Due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, zone := now.Zone()
	if r.open {
		if !r.rotate && now.Sub(r.began) < r.cfg.MostAge && zone == r.zone {
			return false
		}
		r.close("", true)
		return true
	}
	return r.pausedAt.IsZero() || time.Since(r.pausedAt) >= r.pause
}

// Begin begins a segment with the state at asOf, a pointer to a struct that the caller no longer changes. now is the
// time of the next round. finish, which may be nil, is called by the goroutine of Run, to change state before it is
// written.
func (r *Recorder) Begin(asOf, now time.Time, state any, finish func()) {
	_, zone := now.Zone()
	r.on = true
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &Header{Version: r.cfg.Version, Arch: runtime.GOARCH, Run: r.run, Began: asOf.In(now.Location()), Follows: r.follows}
	r.queue = append(r.queue, step{begin: h, state: state, finish: finish})
	r.open, r.follows, r.rotate, r.began, r.zone, r.pausedAt = true, false, false, now, zone, time.Time{}
	r.bell.Ring()
}

// Round begins a round. step is by how much the clock was set.
func (r *Recorder) Round(now time.Time, step time.Duration) {
	r.lines, r.spent, r.wrong = r.lines[:0], 0, nil
	r.add(roundLine, now)
	if step != 0 {
		r.add(`,"step":`, step)
	}
	r.lines = append(r.lines, "}\n"...)
}

// Add encodes v as it is now. kind is a Go name.
func (r *Recorder) Add(kind string, v any) {
	r.lines = append(r.lines, itemLine...)
	r.lines = append(r.lines, kind...)
	r.add(itemValue, v)
	r.lines = append(r.lines, "}\n"...)
}

func (r *Recorder) add(text string, v any) {
	if !r.on {
		return
	}
	began := time.Now()
	value, err := json.Marshal(v)
	if err != nil && r.wrong == nil {
		r.wrong = fmt.Errorf("encode: %w", err)
	}
	r.lines = append(append(r.lines, text...), value...)
	r.spent += time.Since(began)
}

// End ends the round.
func (r *Recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on = r.open; !r.on {
		return
	}
	if r.wrong != nil {
		r.stop(r.wrong.Error(), retryAfter)
		return
	}
	if r.waiting+len(r.lines) > mostBuffer {
		r.stop("the disk is too slow", retryAfter)
		return
	}
	if last := len(r.queue) - 1; last < 0 || r.queue[last].rounds == nil {
		r.queue = append(r.queue, step{rounds: make([]byte, 0, largeChunk)})
	}
	last := &r.queue[len(r.queue)-1]
	last.rounds = append(last.rounds, r.lines...)
	r.waiting += len(r.lines)
	r.spend(r.spent)
	r.bell.Ring()
}

// close ends the segment. The caller holds mu.
func (r *Recorder) close(why string, follows bool) {
	r.queue = append(r.queue, step{end: true, why: why})
	r.open, r.follows = false, follows
	r.bell.Ring()
}

// stop also pauses recording. The caller holds mu.
func (r *Recorder) stop(why string, pause time.Duration) {
	if r.open {
		r.close(why, false)
		r.pausedAt, r.pause = time.Now(), pause
		r.log.Warn("the record has a gap from here", "why", why, "for", pause.String())
	}
}

// spend pauses recording beyond mostShare. The caller holds mu.
func (r *Recorder) spend(d time.Duration) {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	allowed := func(d time.Duration) time.Duration { return time.Duration(mostShare * float64(d)) }
	r.cost += d
	r.used = max(0, r.used+d-allowed(now.Sub(r.since)))
	r.since = now
	if r.used > allowed(burst) {
		pause := time.Duration(float64(r.used-allowed(burst)/2) / mostShare) // until half of it is allowed again
		r.stop(fmt.Sprintf("it would take more than %g of a core", mostShare), pause)
	}
}

// Cost returns the time that recording has taken.
func (r *Recorder) Cost() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cost
}

// Run writes until ctx ends, then the rest, and returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	d := &disk{cfg: r.cfg}
	defer d.close()
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	for {
		select {
		case <-r.bell:
		case <-ctx.Done():
			r.write(d)
			r.mu.Lock()
			if r.open {
				r.close(Ended, false)
			}
			r.mu.Unlock()
			r.write(d)
			return nil
		}
		if !r.large() {
			timer.Reset(flushEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		r.write(d)
	}
}

func (r *Recorder) large() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting >= largeChunk
}

func (r *Recorder) write(d *disk) {
	r.mu.Lock()
	queue := r.queue
	r.queue, r.waiting = nil, 0
	r.mu.Unlock()
	began := time.Now()
	var failed error
	for _, s := range queue {
		failed = errors.Join(failed, d.step(s))
	}
	took := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate = r.rotate || d.size() >= r.cfg.MostBytes/segments
	if failed != nil {
		r.stop(failed.Error(), retryAfter)
	}
	r.spend(took)
}
