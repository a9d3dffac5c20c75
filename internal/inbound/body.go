package inbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rouse-dev/rouse/internal/budget"
)

// Body is a request's whole body, owned by whoever read it, so that it can be sent
// again and again while the client sees nothing. Its memory is pooled, and charged:
// both are given back once [Body.Release] was called and every reader was closed.
type Body struct {
	data    []byte
	whole   *[]byte // nil: there is none
	account *budget.Account
	refs    atomic.Int32
}

// Buffers are pooled in four sizes; larger ones are left to the garbage collector.
var pools = [...]*sync.Pool{pool(4 << 10), pool(16 << 10), pool(64 << 10), pool(256 << 10)}

// sizes are the pools'.
var sizes = [len(pools)]int64{4 << 10, 16 << 10, 64 << 10, 256 << 10}

func pool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// fitting is the size of the buffer that a wish for so many bytes gets.
func fitting(want int64) int64 {
	for _, size := range sizes {
		if want <= size {
			return size
		}
	}
	return want
}

func grab(size int64) *[]byte {
	for i := range sizes {
		if size == sizes[i] {
			return pools[i].Get().(*[]byte)
		}
	}
	b := make([]byte, size)
	return &b
}

func giveBack(b *[]byte) {
	for i := range sizes {
		if int64(len(*b)) == sizes[i] {
			pools[i].Put(b)
		}
	}
}

// Bytes returns the body. It must not be changed, nor used after [Body.Release].
func (b *Body) Bytes() []byte { return b.data }

// Len is its length.
func (b *Body) Len() int { return len(b.data) }

// Keep leaves the body's memory to the garbage collector: its bytes may be used after
// [Body.Release], which then ends only what is charged.
func (b *Body) Keep() []byte {
	b.whole = nil
	return b.data
}

// Release says that no further reader will be asked for. It must be called once.
func (b *Body) Release() { b.unref() }

func (b *Body) unref() {
	if b.refs.Add(-1) != 0 {
		return
	}
	if b.whole != nil {
		giveBack(b.whole)
		b.whole, b.data = nil, nil
	}
	b.account.Close()
}

// Take charges n bytes more to whoever pays for the body, until [Body.Give] or the end of the body, as
// [budget.Account.Take] does.
func (b *Body) Take(ctx context.Context, n int64) error { return b.account.Take(ctx, n) }

// Give takes n bytes off what [Body.Take] charged.
func (b *Body) Give(n int64) { b.account.Give(n) }

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
