package inbound

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Body is a request's whole body. Its memory is pooled, and charged until [Body.Release] was called and every reader was
// closed.
type Body struct {
	door    *Door
	data    []byte
	whole   []byte // what data is a part of
	account *Account
	refs    atomic.Int32
	of      *Body // the owner of the bytes; nil: this body
	object  *jsonfield.Object
}

// Buffers are pooled by size, in powers of two: a growing body returns its smaller buffers for reuse.
const (
	smallest = 10 // 1 KiB
	largest  = 26 // 64 MiB
)

// pools[n] has buffers of 1 << (smallest + n) bytes.
var pools [largest - smallest + 1]sync.Pool

// fitting returns the buffer size for want bytes: the next power of two, unless that wastes too much.
func fitting(want int64) int64 {
	if size := int64(1) << poolOf(want); want <= 1<<largest && (want <= 256<<10 || want > size*7/8) {
		return size
	}
	return want
}

func poolOf(size int64) int { return max(bits.Len64(uint64(size-1)), smallest) }

// Grab returns a buffer, with any content.
func Grab(size int64) []byte {
	if n := poolOf(size); n <= largest && size == 1<<n {
		if b, ok := pools[n-smallest].Get().(*[]byte); ok {
			return *b
		}
	}
	if size >= largeBuffer && uncollected.Add(size) >= 256<<20 {
		uncollected.Store(0)
		go debug.FreeOSMemory()
	}
	return make([]byte, size)
}

// Go's collector lets the heap grow to twice what is in use, and does not run while nothing is allocated: large buffers
// would take more than the limit of bodies, for minutes.
const (
	largeBuffer  = 1 << 20
	collectAfter = 10 * time.Second
)

var (
	uncollected atomic.Int64 // bytes of large buffers since the last collection
	collecting  atomic.Bool
)

// GiveBack returns a buffer of [Grab], which must not be used afterwards.
func GiveBack(b []byte) {
	if n := poolOf(int64(len(b))); n <= largest && len(b) == 1<<n {
		pools[n-smallest].Put(&b)
	}
	if len(b) >= largeBuffer {
		CollectLater()
	}
}

// CollectLater starts a collection in a while, and gives what it frees back to the system.
func CollectLater() {
	if collecting.CompareAndSwap(false, true) {
		time.AfterFunc(collectAfter, func() {
			collecting.Store(false)
			debug.FreeOSMemory()
			debug.FreeOSMemory() // a buffer leaves its pool at the second collection
		})
	}
}

// Bytes returns the body. It must not be modified, nor used after [Body.Release].
func (b *Body) Bytes() []byte { return b.data }

// Object returns the body's fields, which must not be edited. The owner must call it first, before others read the body.
func (b *Body) Object() *jsonfield.Object {
	if b.object == nil {
		b.object = jsonfield.Open(b.data)
	}
	return b.object
}

// Len returns the length of the body.
func (b *Body) Len() int { return len(b.data) }

// Release ends the use of the body; no further readers may be opened. It must be called once.
func (b *Body) Release() {
	if b.refs.Add(-1) != 0 {
		return
	}
	b.Drop()
	b.account.Close()
	if b.of != nil {
		b.of.Release()
	}
}

// Drop releases the bytes; there must be no reader. The charge stays until [Body.Release], for data derived from them.
func (b *Body) Drop() {
	GiveBack(b.whole)
	b.whole, b.data = nil, nil
}

// Take charges n more bytes until [Body.Give] or the end of the body, as [Account.Take] does. Errors are those of
// [Door.Read].
func (b *Body) Take(ctx context.Context, n int64) error {
	err := b.account.Take(ctx, n)
	if known := b.door.refusal(err); known != nil {
		return known
	}
	return err
}

// Give returns n bytes charged by [Body.Take].
func (b *Body) Give(n int64) { b.account.Give(n) }

// Reader returns a reader of the whole body, which keeps the memory until it is closed.
func (b *Body) Reader() io.ReadCloser {
	if b.Len() == 0 {
		return http.NoBody
	}
	b.refs.Add(1)
	return &reader{body: b}
}

type reader struct {
	mu   sync.Mutex // guards all: one goroutine of a transport may close it while another one reads
	body *Body      // nil once closed
	at   int
}

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	if r.at == len(r.body.data) {
		return 0, io.EOF
	}
	n := copy(p, r.body.data[r.at:])
	r.at += n
	return n, nil
}

// share returns the body, with the reader's reference; nil: something was read, or the reader is closed.
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

// Close releases the reader's reference. Further calls do nothing.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		r.body.Release()
		r.body = nil
	}
	return nil
}

const share = 0.9

// LimitMemory sets Go's memory limit from the container's limit, if there is one, unless $GOMEMLIMIT is set. It returns the
// limit in effect, in bytes; 0: none. It must be called once, before the process serves.
func LimitMemory() int64 {
	// It fails without a control group or a limit.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(share), memlimit.WithProvider(memlimit.FromCgroup))
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// Error is why a request is refused. Its wire form depends on the API.
type Error struct {
	Status  int
	Code    string
	Message string
}

func (e *Error) Error() string { return e.Message }

// HTTP returns the answer's status, code and retry delay; 0: none.
func (e *Error) HTTP() (status int, code string, retryAfter time.Duration) {
	if e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests {
		retryAfter = time.Second
	}
	return e.Status, e.Code, retryAfter
}

// As in package api, which this package may not import.
const (
	codeFull     = "hold_full"
	codeTooLarge = "body_too_large"
)

func refuse(status int, code, format string, args ...any) error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func size(bytes int64) string {
	v, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + unit
}
