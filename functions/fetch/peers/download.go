package peers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// Job is a file to fetch.
type Job struct {
	Right  Right
	SHA256 string // lower-case hex, from the source
	Size   int64
	File   *os.File // chunks come in any order
	// Open opens the file for peers, also after the download. fs.ErrNotExist: it is gone.
	Open func() (*os.File, error)
	// Journal is the path of a file for a later process: a bit for each chunk that File has.
	Journal string
	// Source fills b from offset at. It retries itself: after an error it is not called any more.
	Source func(ctx context.Context, at int64, b []byte) error
	// Got gets the bytes that have arrived or, negative, were wrong. It must not block.
	Got func(n int64)
}

// Result is in bytes.
type Result struct{ FromSource, FromPeers int64 }

// ErrContent says that the source's content does not have the announced SHA-256.
var ErrContent = errors.New("the source sends another content than it said")

// download is owned by run's goroutine, but for work and mine, which has a lock.
type download struct {
	n       *Node
	job     Job
	mine    *held
	journal *os.File
	chunks  []chunk
	peers   []*peer // nil: not looked up yet
	part    func()  // ends all exchange with peers

	settled time.Time // the source is not asked before
	busy    int       // transfers
	asked   time.Time // when a transfer from the source last began or ended
	moved   time.Time // when a chunk last arrived
	dead    error     // why the source is not asked any more

	hash    hash.Hash // of the first hashed chunks
	hashed  int
	hashing bool

	work   chan func() // run by the owner; goroutines send until ctx ends; never closed
	result Result
	done   bool
	err    error
	wg     sync.WaitGroup
}

type chunk struct {
	have bool
	busy bool   // in transfer
	from string // the peer that sent its bytes, right or wrong; "": the source
}

// Download blocks until the file is whole and verified, ctx ends, or it can't be had. Meanwhile, and after a success, the node serves the
// file. The next attempt uses what arrived. Errors wrap [ErrContent] or come from Job's functions.
func (n *Node) Download(ctx context.Context, job Job) (Result, error) {
	if job.Size <= 0 || job.Size > maxSize {
		return Result{}, fmt.Errorf("a file of %d bytes is not shared", job.Size)
	}
	l, now := newLayout(job.Size, n.chunk), time.Now()
	d := &download{
		n: n, job: job, chunks: make([]chunk, l.count()), hash: sha256.New(), work: make(chan func()), settled: now.Add(n.settle), moved: now, asked: now,
		mine: &held{key: newKey(n.cfg.Group, job.Right), layout: l, open: job.Open, state: state{Node: n.name, Have: make(bits, (l.count()+7)/8)}},
	}
	if err := d.resume(); err != nil {
		return Result{}, err
	}
	defer d.journal.Close()
	n.serve(d.mine)
	if err := d.run(ctx); err != nil {
		n.forget(d.mine)
		return d.result, err
	}
	d.mine.change(func(s *state) { s.Whole, s.Have = true, nil })
	return d.result, nil
}

// resume keeps an earlier process's chunks.
func (d *download) resume() error {
	old, err := os.ReadFile(d.job.Journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read what has come: %w", err)
	}
	if d.journal, err = os.Create(d.job.Journal); err != nil {
		return fmt.Errorf("note what comes: %w", err)
	}
	_, _ = d.journal.Write(d.mine.state.Have)
	for i := range d.chunks {
		if len(old) == len(d.mine.state.Have) && bits(old).has(i) {
			d.note(i, true, "an earlier process")
		}
	}
	return nil
}

const (
	tick       = 100 * time.Millisecond // how often slow events are checked
	settle     = 500 * time.Millisecond // for peers to say what they have before the source is asked
	steal      = time.Second            // without a fetch from the source for so long, a node takes others' chunks
	peerWithin = 20 * time.Second       // for a transfer from a peer
	leaveAlone = 2 * time.Second        // for a peer after a failure
	patience   = 15 * time.Second       // without a chunk for so long, peers' claims do not count

	fromPeer     = 2   // transfers at once, from each peer
	fromSource   = 4   // transfers at once, for a node alone
	maxTransfers = 16  // each has a chunk in memory
	compared     = 256 // to find a rare chunk
)

func (d *download) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer cancel()
	together, part := context.WithCancel(ctx)
	d.part = part
	defer part()
	d.wg.Go(func() { d.lookup(together) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		d.dispatch(ctx)
		d.advance(ctx)
		if d.err != nil || d.done {
			return d.err
		}
		if d.dead != nil && d.busy == 0 && !d.hashing && (time.Since(d.moved) > patience || time.Now().After(d.settled) && !slices.ContainsFunc(d.peers, (*peer).usable)) {
			return d.dead // no peer can bring the missing chunks
		}
		select {
		case f := <-d.work:
			f()
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *download) do(ctx context.Context, f func()) {
	select {
	case d.work <- f:
	case <-ctx.Done():
	}
}

func (d *download) dispatch(ctx context.Context) {
	for _, k := range rand.Perm(len(d.peers)) {
		for p := d.peers[k]; p.usable() && time.Now().After(p.until) && p.busy < fromPeer && d.busy < maxTransfers; {
			i := d.nextFromPeer(p)
			if i < 0 {
				break
			}
			d.transfer(ctx, i, p)
		}
	}
	if d.peers != nil && !slices.ContainsFunc(d.peers, func(p *peer) bool { return p.state == nil && !p.out }) {
		d.settled = time.Time{} // they have said what they have
	}
	for d.dead == nil && time.Now().After(d.settled) {
		i := d.nextFromSource()
		if i < 0 {
			break
		}
		d.transfer(ctx, i, nil)
	}
}

// around begins at a random chunk.
func (d *download) around() iter.Seq2[int, *chunk] {
	return func(yield func(int, *chunk) bool) {
		start := rand.IntN(len(d.chunks))
		for k := range d.chunks {
			i := (start + k) % len(d.chunks)
			if !yield(i, &d.chunks[i]) {
				return
			}
		}
	}
}

// nextFromPeer returns the rarest of several chunks that p has, or -1.
func (d *download) nextFromPeer(p *peer) int {
	best, fewest, seen := -1, maxPeers+1, 0
	for i, c := range d.around() {
		if c.have || c.busy || !p.has(i) {
			continue
		}
		holders := 0
		for _, o := range d.peers {
			if o.has(i) {
				holders++
			}
		}
		if holders < fewest {
			best, fewest = i, holders
		}
		if seen++; fewest == 1 || seen == compared {
			break
		}
	}
	return best
}

// nextFromSource returns a chunk, or -1. Nodes that know of one another agree on its owner.
func (d *download) nextFromSource() int {
	n, place := 1, 0
	for _, p := range d.peers {
		if p.fetches() {
			n++
			if p.state.Node < d.n.name {
				place++
			}
		}
	}
	begun := len(d.mine.state.Begun)
	if begun >= min(fromSource, max(1, 2*fromSource/n)) { // fewer if many fetch: each chunk is passed on sooner
		return -1
	}
	idle := begun == 0 && time.Since(d.asked) > d.n.steal+time.Duration(place)*askEvery // by place: one node takes it and the others see that
	for i, c := range d.around() {
		if !c.have && !c.busy && (i%n == place || idle) && !d.expected(i) {
			return i
		}
	}
	return -1
}

func (d *download) expected(i int) bool {
	return time.Since(d.moved) < patience && slices.ContainsFunc(d.peers, func(p *peer) bool {
		return p.has(i) && !p.fails || p.fetches() && slices.Contains(p.state.Begun, i)
	})
}

// transfer fetches chunk i from a peer; nil: from the source.
func (d *download) transfer(ctx context.Context, i int, p *peer) {
	d.chunks[i].busy = true
	d.busy++
	at, size := d.mine.span(i)
	var get func() ([]byte, error)
	if p == nil {
		d.asked = time.Now()
		d.mine.change(func(s *state) { s.Begun = append(s.Begun, i) })
		get = func() ([]byte, error) {
			b := make([]byte, size)
			return b, d.job.Source(ctx, at, b)
		}
	} else {
		p.busy++
		ctx, cancel := context.WithTimeout(p.ctx, d.n.peerWithin)
		get = func() ([]byte, error) {
			defer cancel()
			return d.n.askChunk(ctx, p.addr, d.mine.key, i, size)
		}
	}
	d.wg.Go(func() {
		b, err := get()
		d.do(ctx, func() {
			d.chunks[i].busy = false
			d.busy--
			if p == nil {
				d.fromSource(i, b, err)
			} else {
				d.fromPeer(p, i, b, err)
			}
		})
	})
}

func (d *download) fromPeer(p *peer, i int, b []byte, err error) {
	p.busy--
	switch {
	case errors.Is(err, errSeal):
		d.distrust(p, err)
	case err != nil:
		p.fails, p.until = true, time.Now().Add(leaveAlone)
		if p.usable() { // else it is known to be gone
			d.n.cfg.Logger.Info("a peer failed to send a chunk", "peer", p.addr, "chunk", i, "error", err)
		}
	default:
		p.fails = false
		d.result.FromPeers += int64(len(b))
		d.write(i, b, p.addr)
	}
}

func (d *download) distrust(p *peer, reason error) {
	if p.out {
		return
	}
	p.out = true
	d.n.cfg.Logger.Warn("a peer sends wrong bytes, it is not asked again", "peer", p.addr, "reason", reason, "sha256", d.job.SHA256)
}

func (d *download) fromSource(i int, b []byte, err error) {
	d.asked = time.Now()
	d.mine.change(func(s *state) { s.Begun = slices.DeleteFunc(s.Begun, func(k int) bool { return k == i }) })
	if err != nil {
		d.dead = cmp.Or(d.dead, err)
		return
	}
	d.result.FromSource += int64(len(b))
	if from := d.chunks[i].from; from != "" {
		at, n := d.mine.span(i)
		old := make([]byte, n)
		if _, err := d.job.File.ReadAt(old, at); err != nil && err != io.EOF || !bytes.Equal(old, b) {
			d.n.cfg.Logger.Warn("a peer has sent another chunk than the source", "peer", from, "chunk", i, "sha256", d.job.SHA256)
		}
	}
	d.write(i, b, "")
}

func (d *download) write(i int, b []byte, from string) {
	at, _ := d.mine.span(i)
	if _, err := d.job.File.WriteAt(b, at); err != nil {
		d.err = err
		return
	}
	d.moved = time.Now()
	d.note(i, true, from)
}

func (d *download) note(i int, have bool, from string) {
	d.chunks[i].have, d.chunks[i].from = have, from
	_, n := d.mine.span(i)
	if !have {
		n = -n
	}
	d.job.Got(n)
	d.mine.change(func(s *state) {
		s.Have.set(i, have)
		_, _ = d.journal.WriteAt(s.Have[i/8:i/8+1], int64(i/8)) // else it is fetched again after a crash
	})
}

// advance hashes what has arrived from the beginning on, and judges the whole.
func (d *download) advance(ctx context.Context) {
	if d.hashing || d.err != nil {
		return
	}
	if d.hashed == len(d.chunks) {
		d.judge()
		return
	}
	end := d.hashed
	for end < len(d.chunks) && d.chunks[end].have {
		end++
	}
	if end == d.hashed {
		return
	}
	d.hashing = true
	at, _ := d.mine.span(d.hashed)
	last, n := d.mine.span(end - 1)
	d.wg.Go(func() {
		_, err := io.Copy(d.hash, io.NewSectionReader(d.job.File, at, last+n-at))
		d.do(ctx, func() {
			d.hashing, d.hashed = false, end
			if err != nil {
				d.err = fmt.Errorf("read what has come: %w", err)
			}
		})
	})
}

// judge drops all chunks from peers if the whole is wrong.
func (d *download) judge() {
	if hex.EncodeToString(d.hash.Sum(nil)) == d.job.SHA256 {
		d.done = true
		return
	}
	d.hash, d.hashed = sha256.New(), 0
	d.part()
	d.peers = []*peer{}
	d.err = ErrContent
	for i, c := range d.chunks {
		if c.from != "" {
			d.err = nil
			d.note(i, false, c.from)
		}
	}
	d.n.cfg.Logger.Warn("checksum mismatch: fetching the chunks from peers again from the source", "sha256", d.job.SHA256)
}
