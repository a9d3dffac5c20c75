package pyfunc

import (
	"io"
	"net/http"
	"sync"
)

// buffer is memory that calls hand on to one another.
type buffer struct{ b []byte }

// pool keeps buffers of a usual size.
type pool struct{ sync.Pool }

// Sizes of a new buffer, and of the largest that is kept.
const (
	newBuffer  = 16 << 10
	keptBuffer = 1 << 20
)

var buffers = pool{sync.Pool{New: func() any { return &buffer{make([]byte, 0, newBuffer)} }}}

func (p *pool) get() *buffer { return p.Get().(*buffer) }

// put takes b back. Its bytes must not be used any more.
func (p *pool) put(b *buffer) {
	if b == nil || cap(b.b) > keptBuffer {
		return
	}
	b.b = b.b[:0]
	p.Put(b)
}

// inbound is the body of a request that is made here. Its bytes are a buffer's, so
// a read after the handler has returned gets an error, as a
// server's handler does.
type inbound struct {
	mu     sync.Mutex // guards what follows
	rest   []byte
	closed bool
}

// Read reads what is left.
func (i *inbound) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// Close ends reading.
func (i *inbound) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.rest = true, nil
	return nil
}
