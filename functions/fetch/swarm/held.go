package swarm

import (
	"crypto/sha256"
	"errors"
	"io"
	"sync"
)

// What an entry of a log says of a chunk.
const (
	proven  = "proven"  // the node has it, and vouches for it
	relayed = "relayed" // the node has it from another one
	begun   = "begun"   // the node is fetching it from the source
	lost    = "lost"    // the node has it no longer
)

// entry is one line of a node's log of a file.
type entry struct {
	Chunk int    `json:"chunk"`
	What  string `json:"what"`
	Sum   *Sum   `json:"sum,omitempty"`
}

// page is an answer to the question for a log.
type page struct {
	Node  string `json:"node"` // the process
	Log   string `json:"log"`  // this log: another one begins anew
	Size  int64  `json:"size"`
	Chunk int64  `json:"chunk"`
	// Whole says that the node has proved the whole file, and vouches for every chunk that it has.
	Whole   bool    `json:"whole,omitempty"`
	Next    int     `json:"next"` // how many entries there were
	Entries []entry `json:"entries"`
}

// maxEntries bounds the entries of a page.
const maxEntries = 4096

var (
	errNotHeld = errors.New("the chunk is not here")
	errSpoiled = errors.New("the chunk is not what it was: the disk, or somebody, has changed the file")
)

// held is a file of which this node has all or some, as others may ask for it. It is safe for many goroutines.
type held struct {
	key Key
	layout
	name string // of this log
	// open opens the file. Each reader has its own.
	open func() (ReaderAtCloser, error)

	mu      sync.Mutex // guards all below
	entries []entry
	sums    map[int]Sum
	whole   bool
	news    chan struct{} // closed when something changes, and replaced
}

// ReaderAtCloser is an open file.
type ReaderAtCloser interface {
	io.ReaderAt
	io.Closer
}

func newHeld(key Key, l layout, open func() (ReaderAtCloser, error)) *held {
	return &held{key: key, layout: l, name: randomID(), open: open, sums: map[int]Sum{}, news: make(chan struct{})}
}

// say appends to the log.
func (h *held) say(chunk int, what string, sum Sum) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := entry{Chunk: chunk, What: what}
	switch what {
	case proven, relayed:
		e.Sum, h.sums[chunk] = &sum, sum
	case lost:
		delete(h.sums, chunk)
	}
	h.entries = append(h.entries, e)
	h.tell()
}

// prove says that the whole is right.
func (h *held) prove() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole = true
	h.tell()
}

// tell wakes who waits for news. mu is held.
func (h *held) tell() {
	close(h.news)
	h.news = make(chan struct{})
}

// page returns the log from an entry on, and a channel that is closed when there is more.
func (h *held) page(log string, after int, whole bool) (p page, some bool, news <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if log != h.name || after < 0 || after > len(h.entries) {
		after, whole = 0, false
	}
	end := min(len(h.entries), after+maxEntries)
	p = page{Log: h.name, Size: h.size, Chunk: h.chunk, Whole: h.whole && end == len(h.entries), Next: end, Entries: h.entries[after:end:end]}
	return p, log != h.name || end > after || p.Whole && !whole, h.news
}

// read returns a chunk, if it has the sum that is asked for, and still is what the log says. Somebody who has read an
// older log than this one asks for what was there then.
func (h *held) read(chunk int, want Sum) ([]byte, error) {
	h.mu.Lock()
	sum, ok := h.sums[chunk]
	h.mu.Unlock()
	if !ok || sum != want {
		return nil, errNotHeld
	}
	f, err := h.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, n := h.span(chunk)
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil && err != io.EOF {
		return nil, err
	}
	if Sum(sha256.Sum256(b)) != sum {
		return nil, errSpoiled
	}
	return b, nil
}

// all are the chunks' sums; nil unless the whole is proved.
func (h *held) all() []Sum {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.whole || len(h.sums) != h.count() {
		return nil
	}
	out := make([]Sum, h.count())
	for i := range out {
		out[i] = h.sums[i]
	}
	return out
}
