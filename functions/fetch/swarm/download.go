package swarm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// Job is a file to fetch.
type Job struct {
	Right  Right
	SHA256 string // in hex, as the source says it
	Size   int64
	// File takes the chunks, in any order.
	File interface {
		io.ReaderAt
		io.WriterAt
	}
	// Open opens the file for peers, while it is fetched and after. An error that wraps fs.ErrNotExist says that it is gone.
	Open func() (ReaderAtCloser, error)
	// Journal is the path of a file that says what File holds, for a later process; "": none.
	Journal string
	// Source fills b from the source's file, from at on.
	Source func(ctx context.Context, at int64, b []byte) error
	// Again waits until Source may be called again after it has failed, failures times in a row; its error is what to give up with.
	Again func(ctx context.Context, failures int, err error) error
	// Got is told of bytes that have come, or, negative, that turned out to be wrong. It must not block. It may be nil.
	Got func(n int64)
}

// Result is how a file came.
type Result struct {
	FromSource, FromPeers int64    // bytes
	Avoided               []string // the addresses of peers that lied
	File                  File     // as others may be told of it
}

// ErrContent says that what the source sends has not the SHA-256 that it said.
var ErrContent = errors.New("the source sends another content than it said")

// download is one under way. All but the channel belongs to the goroutine of run.
type download struct {
	board
	n       *Node
	job     Job
	mine    *held
	journal *os.File
	flights map[*flight]struct{}
	sources int // flights from the source
	retries bool
	failed  int   // times in a row that the source has
	dead    error // why the source is not asked any more
	mean    time.Duration
	result  Result

	hash    hash.Hash // of the chunks before hashed
	hashed  int
	upTo    int // what is being hashed ends there
	hashing bool
	edition int // of hash: what is begun anew makes the old one's end void

	// work holds what goroutines want done by the owner. They send, and stop to when ctx ends; nobody closes it.
	work  chan func()
	err   error
	done  bool
	met   bool // settled
	began time.Time
	moved time.Time // when something last came
	asked time.Time // when the source was last asked, or answered
	wg    sync.WaitGroup
}

// flight is a transfer.
type flight struct {
	chunk  int
	peer   *peer // nil: from the source
	sum    Sum   // what the peer says
	began  time.Time
	cancel context.CancelFunc
	void   bool // it came second, or its peer has lied
}

// stop ends a transfer whose result is of no use.
func (f *flight) stop() {
	f.void = true
	f.cancel()
}

// Download fetches a file, and returns when it is whole and right, ctx has ended, or it can't be had. While it runs, and from then
// on if it succeeds, the node serves the file. What has come before an error is used by the next try, if there is a
// journal. Errors that wrap [ErrContent] blame the source; others are those of Job's functions.
func (n *Node) Download(ctx context.Context, job Job) (Result, error) {
	l := layout{job.Size, n.cfg.Chunk}
	if l.chunk == 0 {
		l.chunk = ChunkSize(job.Size)
	}
	if job.Size <= 0 || job.Size > maxSize {
		return Result{}, fmt.Errorf("a file of %d bytes is not shared", job.Size)
	}
	d := &download{
		n: n, job: job, flights: map[*flight]struct{}{}, work: make(chan func()), hash: sha256.New(), began: time.Now(), moved: time.Now(), asked: time.Now(),
		board: board{name: n.name, chunks: make([]chunk, l.count()), missing: l.count(), holders: make([]int, l.count()), disputes: map[int]bool{},
			rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))},
	}
	d.mine = newHeld(NewKey(n.cfg.Group, job.Right), l, job.Open)
	if err := d.resume(ctx); err != nil {
		return Result{}, err
	}
	defer d.closeJournal()
	n.mu.Lock()
	n.files[d.mine.key.id()] = d.mine
	n.mu.Unlock()
	if err := d.run(ctx); err != nil {
		n.forget(d.mine)
		return d.result, err
	}
	d.mine.prove()
	d.result.File = File{Right: job.Right, Size: job.Size, Chunk: l.chunk, Sums: d.mine.all(), Open: job.Open}
	return d.result, nil
}

// tick is how often it is looked what takes long; settle is how long peers may take to say what they have before the
// source is asked, patience how long a node that fetches nothing from the source leaves to others what is theirs, and hopeless how long nothing may come where the
// source is asked no more.
const (
	tick     = 100 * time.Millisecond
	settle   = 500 * time.Millisecond
	patience = 250 * time.Millisecond
	hopeless = 30 * time.Second
)

func (d *download) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer cancel()
	d.wg.Go(func() { d.lookup(ctx) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		d.dispatch(ctx)
		if d.err != nil || d.done {
			return d.err
		}
		select {
		case f := <-d.work:
			f()
		case <-ticker.C:
			if d.dead != nil && len(d.flights) == 0 && d.hopeless() {
				return d.dead
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hopeless says whether nobody but the source could bring what lacks.
func (d *download) hopeless() bool {
	someone := slices.ContainsFunc(d.peers, func(p *peer) bool { return p.usable() })
	return d.settled(time.Now()) && !someone || time.Since(d.moved) > hopeless
}

// do has f done by the owner.
func (d *download) do(ctx context.Context, f func()) {
	select {
	case d.work <- f:
	case <-ctx.Done():
	}
}

// dispatch begins all transfers that may begin, and hashing.
func (d *download) dispatch(ctx context.Context) {
	now := time.Now()
	late := d.late()
	for more := true; more; {
		more = false
		for _, k := range d.rng.Perm(len(d.peers)) {
			p := d.peers[k]
			if p.busy >= d.n.cfg.FromPeer {
				continue
			}
			if i := d.fromPeer(p, now, late); i >= 0 {
				d.fly(ctx, &flight{chunk: i, peer: p, sum: p.claims[i].sum})
				more = true
			}
		}
	}
	for d.dead == nil && !d.retries && d.sources < d.slots(d.n.cfg.FromSource) && d.settled(now) {
		idle := time.Duration(0)
		if d.sources == 0 {
			idle = now.Sub(d.asked)
		}
		i := d.fromSource(now, late, idle, max(d.n.patience, d.mean/4))
		if i < 0 {
			break
		}
		if !d.chunks[i].have {
			d.mine.say(i, begun, Sum{})
		}
		d.fly(ctx, &flight{chunk: i})
	}
	d.advance(ctx)
}

// late is how long a transfer may take until another one is begun beside it.
func (d *download) late() time.Duration { return max(2*time.Second, 4*d.mean) }

// settled says whether the peers have said what they have, or had time to.
func (d *download) settled(now time.Time) bool {
	d.met = d.met || now.Sub(d.began) > d.n.settle ||
		d.peers != nil && !slices.ContainsFunc(d.peers, func(p *peer) bool { return !p.alive && !p.convicted })
	return d.met
}

// fly begins a transfer.
func (d *download) fly(ctx context.Context, f *flight) {
	flying, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	f.began = time.Now()
	d.flights[f] = struct{}{}
	c := &d.chunks[f.chunk]
	if c.flights++; c.flights == 1 {
		c.since = f.began
	}
	at, size := d.mine.span(f.chunk)
	if f.peer != nil {
		f.peer.busy++
	} else {
		d.sources++
		d.asked = f.began
	}
	d.wg.Go(func() {
		defer cancel()
		var b []byte
		var err error
		if f.peer != nil {
			b, err = d.n.askChunk(flying, f.peer.addr, d.mine.key, f, size)
		} else {
			b = make([]byte, size)
			err = d.job.Source(flying, at, b)
		}
		sum := f.sum
		if f.peer == nil && err == nil {
			sum = sha256.Sum256(b)
		}
		d.do(ctx, func() { d.landed(ctx, f, b, sum, err) })
	})
}

// advance hashes what has come, from the file's beginning on, and looks at the whole when it is there.
func (d *download) advance(ctx context.Context) {
	if d.hashing || d.err != nil {
		return
	}
	end := d.hashed
	for end < len(d.chunks) && d.chunks[end].have && end-d.hashed < 64 {
		end++
	}
	if end == d.hashed {
		if end == len(d.chunks) && !d.auditing && len(d.disputes) == 0 {
			d.judge()
		}
		return
	}
	d.hashing, d.upTo = true, end
	at, _ := d.mine.span(d.hashed)
	last, n := d.mine.span(end - 1)
	h, edition := d.hash, d.edition
	d.wg.Go(func() {
		_, err := io.Copy(h, io.NewSectionReader(d.job.File, at, last+n-at))
		d.do(ctx, func() {
			d.hashing = false
			switch {
			case err != nil:
				d.err = fmt.Errorf("read what has come: %w", err)
			case edition == d.edition:
				d.hashed = end
			}
		})
	})
}

// rewind hashes from the beginning again, if chunk i was hashed already or is being hashed.
func (d *download) rewind(i int) {
	if i < d.upTo {
		d.hash, d.hashed, d.upTo, d.edition = sha256.New(), 0, 0, d.edition+1
	}
}

// judge looks at the whole.
func (d *download) judge() {
	want, err := hex.DecodeString(d.job.SHA256)
	if err != nil {
		d.err = fmt.Errorf("the file's sha256: %w", err)
		return
	}
	if bytes.Equal(d.hash.Sum(nil), want) {
		d.done = true
		return
	}
	d.auditing = !d.allProven()
	switch {
	case !d.auditing:
		d.err = ErrContent
	case d.dead != nil:
		d.err = fmt.Errorf("the file that peers have sent is not right, and the source doesn't answer: %w", d.dead)
	default:
		d.n.cfg.Logger.Warn("a shared file is not what its source says: looking for the peer that lies", "sha256", d.job.SHA256)
	}
}
