package inbound

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rouse-dev/rouse/internal/budget"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Body is a request's whole body, owned by whoever read it, so that it can be sent
// again and again while the client sees nothing. Its memory is pooled, and charged:
// both are given back once [Body.Release] was called and every reader was closed.
type Body struct {
	door    *Door
	data    []byte
	whole   *[]byte // nil: there is none
	account *budget.Account
	refs    atomic.Int32
	of      *Body             // whose bytes these are; nil: its own
	object  *jsonfield.Object // nil: nobody has asked for it
}

// Buffers are pooled by size, in powers of two; what is larger than the largest is left
// to the garbage collector. So a body that grows leaves its smaller buffers to others,
// and not to the collector, which takes its time.
const (
	smallest = 10 // 1 KiB
	largest  = 26 // 64 MiB
)

// pools are those of 1 << smallest, and so on.
var pools [largest - smallest + 1]sync.Pool

// fitting is the size of the buffer that a wish for so many bytes gets: the next power of two, as long as that
// wastes little.
func fitting(want int64) int64 {
	if size := int64(1) << poolOf(want); want <= 1<<largest && (want <= 256<<10 || want > size*7/8) {
		return size
	}
	return want
}

// poolOf is the power of two that so many bytes fit into, and no less than the smallest.
func poolOf(size int64) int { return max(bits.Len64(uint64(size-1)), smallest) }

func grab(size int64) *[]byte {
	if n := poolOf(size); n <= largest && size == 1<<n {
		if b, ok := pools[n-smallest].Get().(*[]byte); ok {
			return b
		}
	}
	b := make([]byte, size)
	return &b
}

func giveBack(b *[]byte) {
	if n := poolOf(int64(len(*b))); n <= largest && len(*b) == 1<<n {
		pools[n-smallest].Put(b)
	}
}

// Bytes returns the body. It must not be changed, nor used after [Body.Release].
func (b *Body) Bytes() []byte { return b.data }

// Object returns the body's fields. Its owner must ask first, before the body is read by others, and must not edit it; a body that was
// read of another one in this process gets a copy.
func (b *Body) Object() *jsonfield.Object {
	if b.object == nil {
		b.object = jsonfield.Open(b.data)
	}
	return b.object
}

// Len is its length.
func (b *Body) Len() int { return len(b.data) }

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
	if b.of != nil {
		b.of.unref()
	}
}

// Drop gives the bytes back: they must not be used any more, nor may there be a reader. What is charged for them stays so
// until [Body.Release], for what was made of them.
func (b *Body) Drop() {
	if b.whole != nil {
		giveBack(b.whole)
	}
	b.whole, b.data = nil, nil
}

// Take charges n bytes more to whoever pays for the body, until [Body.Give] or the end of the body, as
// [budget.Account.Take] does. The errors are those of [Door.Read].
func (b *Body) Take(ctx context.Context, n int64) error {
	err := b.account.Take(ctx, n)
	if known := b.door.refusal(err); known != nil {
		return known
	}
	return err
}

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

// share returns the body, with the reader's reference to it, if nothing was read and the reader is open; else nil.
func (r *reader) share() *Body {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at > 0 {
		return nil
	}
	b := r.body
	r.body = nil
	return b
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
