package peers

import (
	"errors"
	"os"
	"slices"
	"sync"
)

// Chunks are larger if there would be more than manyChunks.
const (
	smallChunk = 1 << 20
	largeChunk = 4 << 20
	manyChunks = 1024
	maxSize    = 1 << 40
	// MinSize is the least size of a file that is shared.
	MinSize = 2 * smallChunk
)

type layout struct{ size, chunk int64 }

// newLayout takes chunk 0 for the size that all nodes use.
func newLayout(size, chunk int64) layout {
	if chunk == 0 {
		if chunk = smallChunk; size > manyChunks*smallChunk {
			chunk = largeChunk
		}
	}
	return layout{size, chunk}
}

func (l layout) count() int { return int((l.size + l.chunk - 1) / l.chunk) }

func (l layout) span(i int) (at, n int64) {
	at = int64(i) * l.chunk
	return at, min(l.chunk, l.size-at)
}

type bits []byte

func (b bits) has(i int) bool { return i/8 < len(b) && b[i/8]&(1<<(i%8)) != 0 }

func (b bits) set(i int, to bool) {
	b[i/8] &^= 1 << (i % 8)
	if to {
		b[i/8] |= 1 << (i % 8)
	}
}

type state struct {
	Node  string `json:"node"` // names the process
	Whole bool   `json:"whole,omitempty"`
	Have  bits   `json:"have,omitempty"`
	Begun []int  `json:"begun,omitempty"` // in transfer from the source
}

// held is a complete or partial file for peers. It is safe for many goroutines.
type held struct {
	key key
	layout
	open func() (*os.File, error)

	mu    sync.Mutex // guards state
	state state
}

func (h *held) change(f func(*state)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.state)
}

func (h *held) told() (s state) {
	h.change(func(now *state) {
		s = *now
		s.Have, s.Begun = slices.Clone(s.Have), slices.Clone(s.Begun)
	})
	return s
}

var errAbsent = errors.New("the chunk is not here")

func (h *held) read(i int) ([]byte, error) {
	here := false
	h.change(func(s *state) { here = i >= 0 && i < h.count() && (s.Whole || s.Have.has(i)) })
	if !here {
		return nil, errAbsent
	}
	f, err := h.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, n := h.span(i)
	b := make([]byte, n)
	if m, err := f.ReadAt(b, at); int64(m) < n {
		return nil, err
	}
	return b, nil
}
