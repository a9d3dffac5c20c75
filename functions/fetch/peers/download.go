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
	SHA256 string // in lower-case hex, as the source says it
	Size   int64
	File   *os.File // takes the chunks, in any order
	// Open opens the file for peers, during the download and after it. An error that wraps fs.ErrNotExist says that it is gone.
	Open func() (*os.File, error)
	// Journal is the path of a file that notes which chunks File has, for a later process.
	Journal string
	// Source fills b from the source's file, from at on.
	Source func(ctx context.Context, at int64, b []byte) error
	// Again waits until Source may be called again after it has failed, failures times in a row; its error is what to give up with.
	Again func(ctx context.Context, failures int, err error) error
	// Got is told of bytes that have come, or, negative, that turned out to be wrong. It must not block.
	Got func(n int64)
}

// Result says where a file came from, in bytes.
type Result struct{ FromSource, FromPeers int64 }

// ErrContent says that what the source sends has not the SHA-256 that it said.
var ErrContent = errors.New("the source sends another content than it said")

// download is one under way. All but the channel belongs to the goroutine of run.
type download struct {
	n       *Node
	job     Job
	mine    *held
	journal *os.File
	chunks  []chunk
	peers   []*peer // nil: not looked up yet
	part    func()  // ends all dealings with peers

	settled time.Time // the source is not asked before
	busy    int       // transfers
	asked   time.Time // when one from the source last began or ended
	moved   time.Time // when a chunk last came
	dead    error     // why the source is not asked any more

	hash    hash.Hash // of the first hashed chunks
	hashed  int
	hashing bool

	work   chan func() // run by the owner; goroutines send until ctx ends, and it is never closed
	result Result
	done   bool
	err    error
	wg     sync.WaitGroup
}

// chunk is one of the file's.
type chunk struct {
	have bool
	busy bool   // it is being transferred
	from string // the address of the peer that sent the file's bytes, right or wrong; "": the source
}

// Download fetches a file, and returns when it is whole and right, ctx has ended, or it can't be had. Meanwhile, and from then
// on if it succeeds, the node serves the file. What has come before an error is used by the next try. Errors that wrap
// [ErrContent] blame the source; others are those of Job's functions.
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

// resume opens the journal, which is the set of the chunks that are here, and takes those of an earlier process. If they are
// wrong, so is the whole.
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
	tick       = 100 * time.Millisecond // how often a download looks at what takes long
	settle     = 500 * time.Millisecond // how long peers may take to say what they have before the source is asked
	steal      = time.Second            // a node that has fetched nothing from the source for so long takes what is others' to fetch
	peerWithin = 20 * time.Second       // a transfer from a peer is given up after that
	leaveAlone = 2 * time.Second        // how long a peer that has failed is left alone
	patience   = 15 * time.Second       // if nothing has come for so long, a node no longer relies on what others say that they have, or do

	fromPeer     = 2   // transfers from a peer at once
	fromSource   = 4   // those from the source, for a node alone
	maxTransfers = 16  // all: each has a chunk in memory
	compared     = 256 // how many chunks are compared to find one that few have
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
			return d.dead // no peer can bring what is missing
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

// do sends f to the owner.
func (d *download) do(ctx context.Context, f func()) {
	select {
	case d.work <- f:
	case <-ctx.Done():
	}
}

// dispatch begins all transfers that may begin.
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

// around returns all chunks, from a random one on.
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

// nextFromPeer returns the chunk to fetch from p: of those that it has, one that few have; -1: none.
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

// nextFromSource returns the chunk to fetch from the source; -1: none. Of n nodes that fetch, chunk i is the one's to fetch that
// has the place i mod n, by name: nodes that know of one another agree.
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
	if begun >= min(fromSource, max(1, 2*fromSource/n)) { // fewer if many fetch: each chunk is here sooner, and passed on
		return -1
	}
	idle := begun == 0 && time.Since(d.asked) > d.n.steal+time.Duration(place)*askEvery // so that one takes it, and the others see it
	for i, c := range d.around() {
		if !c.have && !c.busy && (i%n == place || idle) && !d.expected(i) {
			return i
		}
	}
	return -1
}

// expected reports whether chunk i is likely to come from a peer.
func (d *download) expected(i int) bool {
	return time.Since(d.moved) < patience && slices.ContainsFunc(d.peers, func(p *peer) bool {
		return p.has(i) && !p.fails || p.fetches() && slices.Contains(p.state.Begun, i)
	})
}

// transfer begins to fetch chunk i from a peer; nil: from the source.
func (d *download) transfer(ctx context.Context, i int, p *peer) {
	d.chunks[i].busy = true
	d.busy++
	at, size := d.mine.span(i)
	var get func() ([]byte, error)
	if p == nil {
		d.asked = time.Now()
		d.mine.change(func(s *state) { s.Begun = append(s.Begun, i) })
		get = func() ([]byte, error) { return d.askSource(ctx, at, size) }
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

// askSource asks the source for a chunk until it comes or Job's Again gives up.
func (d *download) askSource(ctx context.Context, at, size int64) ([]byte, error) {
	b := make([]byte, size)
	for failures := 1; ; failures++ {
		err := d.job.Source(ctx, at, b)
		if err == nil {
			return b, nil
		}
		if err := d.job.Again(ctx, failures, err); err != nil {
			return nil, err
		}
	}
}

// fromPeer takes the outcome of a transfer from a peer.
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

// distrust asks a peer no more in this download.
func (d *download) distrust(p *peer, reason error) {
	if p.out {
		return
	}
	p.out = true
	d.n.cfg.Logger.Warn("a peer sends wrong bytes, it is not asked again", "peer", p.addr, "reason", reason, "sha256", d.job.SHA256)
}

// fromSource takes the outcome of a transfer from the source. If a peer has sent other bytes before, it logs its address.
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

// write writes chunk i.
func (d *download) write(i int, b []byte, from string) {
	at, _ := d.mine.span(i)
	if _, err := d.job.File.WriteAt(b, at); err != nil {
		d.err = err
		return
	}
	d.moved = time.Now()
	d.note(i, true, from)
}

// note notes that chunk i is here, or not.
func (d *download) note(i int, have bool, from string) {
	d.chunks[i].have, d.chunks[i].from = have, from
	_, n := d.mine.span(i)
	if !have {
		n = -n
	}
	d.job.Got(n)
	d.mine.change(func(s *state) {
		s.Have.set(i, have)
		_, _ = d.journal.WriteAt(s.Have[i/8:i/8+1], int64(i/8)) // without it the chunk is fetched again after a crash
	})
}

// advance hashes what has come, from the file's beginning on, and judges the whole when it is there.
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

// judge compares the whole with its SHA-256. If it is wrong, all chunks from peers are dropped, and come from the source.
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
	d.n.cfg.Logger.Warn("a file is not what its source says: fetching from the source alone what came from peers", "sha256", d.job.SHA256)
}
