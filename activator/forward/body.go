package forward

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
)

// Body is a request's whole body, owned by the activator, so that it can be
// sent again and again while the client sees nothing. Its memory is pooled: it
// is used again once [Body.Release] was called and every reader was closed.
type Body struct {
	data  []byte
	whole *[]byte
	refs  atomic.Int32
}

// Buffers are pooled in two sizes; larger ones are left to the garbage collector.
const (
	smallBuffer = 16 << 10
	largeBuffer = 256 << 10
	// firstStep bounds what is allocated on a client's word alone; after that memory follows the bytes that came.
	firstStep = 1 << 20
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeBuffer); return &b }}
)

func grab(size int64) *[]byte {
	switch {
	case size <= smallBuffer:
		return smallBuffers.Get().(*[]byte)
	case size <= largeBuffer:
		return largeBuffers.Get().(*[]byte)
	}
	b := make([]byte, min(size, firstStep))
	return &b
}

func giveBack(b *[]byte) {
	switch cap(*b) {
	case smallBuffer:
		smallBuffers.Put(b)
	case largeBuffer:
		largeBuffers.Put(b)
	}
}

// ReadBody reads the body of r to its end. It blocks as long as the client
// sends. The error is an *[api.Error]: 413 past limit, 400 where the body ends
// before its Content-Length; or the context's error if the client left.
func ReadBody(r *http.Request, limit api.Bytes) (*Body, error) {
	tooLarge := api.Errorf(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		"the body is larger than the limit of %s", limit)
	if r.ContentLength > int64(limit) {
		return nil, tooLarge
	}
	b := &Body{}
	b.refs.Store(1)
	if r.ContentLength == 0 || r.Body == nil {
		return b, nil
	}
	b.whole = grab(r.ContentLength + 1) // one more byte, so that the end is seen without growing
	n := 0
	for {
		if n == len(*b.whole) {
			b.grow(n)
		}
		k, err := r.Body.Read((*b.whole)[n:])
		n += k
		switch {
		case int64(n) > int64(limit):
			b.Release()
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			b.data = (*b.whole)[:n]
			return b, nil
		case err != nil:
			b.Release()
			return nil, readError(r, n, err)
		}
	}
}

// grow doubles the buffer, which holds n bytes.
func (b *Body) grow(n int) {
	larger := grab(int64(2 * n))
	if len(*larger) < 2*n { // grab starts small on a client's word; here the bytes have come
		fresh := make([]byte, 2*n)
		larger = &fresh
	}
	copy(*larger, (*b.whole)[:n])
	giveBack(b.whole)
	b.whole = larger
}

func readError(r *http.Request, n int, err error) error {
	// First: the end of what a client sends also ends the context, and it may still read.
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return api.BadRequest("", "the body ends after %d bytes, before its Content-Length or last chunk", n)
	}
	if r.Context().Err() != nil {
		return r.Context().Err()
	}
	return api.BadRequest("", "read the body: %v", err)
}

// Bytes returns the body. It must not be changed, nor used after [Body.Release].
func (b *Body) Bytes() []byte { return b.data }

// Len is its length.
func (b *Body) Len() int { return len(b.data) }

// Release says that no further reader will be asked for. It must be called once.
func (b *Body) Release() { b.unref() }

func (b *Body) unref() {
	if b.refs.Add(-1) == 0 && b.whole != nil {
		giveBack(b.whole)
		b.whole, b.data = nil, nil
	}
}

// Reader returns a reader of the whole body. It keeps the memory until it is
// closed, which a [http.Transport] does even after it returned.
func (b *Body) Reader() io.ReadCloser {
	if b.Len() == 0 {
		return http.NoBody
	}
	b.refs.Add(1)
	return &reader{body: b}
}

// reader may be closed by one goroutine of a transport while another reads.
type reader struct {
	mu   sync.Mutex // guards all
	body *Body      // nil once closed
	at   int
}

// Read copies out of the body.
func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return 0, errors.New("read of a closed body")
	}
	if r.at == len(r.body.data) {
		return 0, io.EOF
	}
	n := copy(p, r.body.data[r.at:])
	r.at += n
	return n, nil
}

// Close gives the memory back. Further calls do nothing.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		r.body.unref()
		r.body = nil
	}
	return nil
}
