package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Memory is an account of memory. Take charges bytes or returns why it can't; Give returns bytes.
type Memory interface {
	Take(ctx context.Context, bytes int64) error
	Give(bytes int64)
}

// Source reads an answer's body into its own buffer.
type Source struct {
	from    io.Reader
	ctx     context.Context
	memory  Memory
	largest int
	charged int64

	buf []byte
	n   int   // bytes in buf that were not dropped
	err error // why reading ended; io.EOF for a clean end
}

// NewSource returns a Source with a buffer of size bytes, which may grow to largest. memory, which may be nil, is charged
// for growth.
func NewSource(ctx context.Context, from io.Reader, size, largest int, memory Memory) *Source {
	return &Source{from: from, ctx: ctx, memory: memory, largest: max(size, largest), buf: inbound.Grab(int64(size))}
}

// Bytes returns what was read and not dropped, until the next call of another method.
func (s *Source) Bytes() []byte { return s.buf[:s.n] }

// Err returns why reading ended: io.EOF for a clean end; nil: it has not.
func (s *Source) Err() error { return s.err }

// Broken returns Err, but nil for a clean end.
func (s *Source) Broken() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// Drop removes the first n bytes.
func (s *Source) Drop(n int) {
	if n > 0 {
		s.n = copy(s.buf, s.buf[n:s.n])
	}
}

// Read reads once, and blocks until something comes.
func (s *Source) Read() {
	k, err := s.from.Read(s.buf[s.n:])
	s.n += k
	s.err = err
}

// Fill reads until there are want bytes, the body ends, or the buffer can't grow.
func (s *Source) Fill(want int) {
	for s.n < want && s.err == nil && s.room() {
		s.Read()
	}
}

func (s *Source) room() bool {
	size := len(s.buf)
	if s.n < size {
		return true
	}
	if size >= s.largest {
		return false
	}
	next := int64(min(2*size, s.largest))
	if s.memory != nil && s.memory.Take(s.ctx, next) != nil {
		return false
	}
	larger := inbound.Grab(next)
	copy(larger, s.buf)
	inbound.GiveBack(s.buf)
	s.buf = larger
	s.give()
	s.charged = next
	return true
}

func (s *Source) give() {
	if s.memory != nil && s.charged > 0 {
		s.memory.Give(s.charged)
	}
	s.charged = 0
}

// Close releases the buffer. It does not close the body.
func (s *Source) Close() {
	if s.buf != nil {
		inbound.GiveBack(s.buf)
		s.buf, s.n = nil, 0
		s.give()
	}
}

// Body is a request's whole body, which can be read repeatedly.
type Body interface {
	Len() int
	Reader() io.ReadCloser
}

// Bytes is a [Body] in a slice that nobody modifies.
type Bytes []byte

func (b Bytes) Len() int { return len(b) }

func (b Bytes) Reader() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// Request returns the outbound request to base, with the header h, which it takes over. The body can be resent.
func Request(ctx context.Context, in *http.Request, base *url.URL, h http.Header, body Body) *http.Request {
	delete(h, "Expect") // the body is already here
	if _, found := h["User-Agent"]; !found {
		h["User-Agent"] = []string{""} // suppresses Go's own
	}
	out := (&http.Request{
		Method: in.Method,
		URL:    &url.URL{Scheme: base.Scheme, Host: base.Host, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery},
		Host:   in.Host,
		Header: h,
		Body:   http.NoBody,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body.Len() > 0 {
		out.ContentLength, out.Body = int64(body.Len()), body.Reader()
		out.GetBody = func() (io.ReadCloser, error) { return body.Reader(), nil }
	}
	return out
}

// CopyHeader copies the headers that may pass between connections and that Rouse does not set itself. It shares the values.
func CopyHeader(to, from http.Header) {
	for name, values := range from {
		if !localhttp.PerConnection(name) && !control.Reserved(name) {
			to[name] = values
		}
	}
	localhttp.DropNamed(to, from["Connection"])
}

// CopyForwarded copies the headers in which proxies name their client, which [httputil.ReverseProxy] leaves out.
func CopyForwarded(to, from http.Header) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := from[name]; v != nil {
			to[name] = v
		}
	}
}

// FormPart returns the next part of a form, not decoded. One that is not well-formed, which servers read differently, is an
// *[api.Error].
func FormPart(form *multipart.Reader) (*multipart.Part, error) {
	part, err := form.NextRawPart()
	if err == nil && (part.FormName() == "" || len(part.Header["Content-Disposition"]) > 1) {
		err = api.BadRequest("", "each part of a form needs one Content-Disposition: form-data, with a name")
	}
	return part, err
}

// Unreachable reports whether a transport's error means that no server has seen the request.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// CutAfter is how long a client may leave a write unread while other requests wait; see [WriteDeadline.Stuck].
const CutAfter = 5 * time.Second

// WriteDeadline bounds how long a client may leave data unread. One goroutine writes; others may call Stuck and Cut.
type WriteDeadline struct {
	// Timeout is the bound; 0: none, Move ignores its controller.
	Timeout time.Duration
	// Buffered is the size up to which a first write sets no deadline, as it fits into buffers.
	Buffered int

	moved time.Time    // zero: nothing was written
	began atomic.Int64 // of the write in progress, in Unix nanoseconds; 0: none is

	mu      sync.Mutex // guards the fields below
	set     bool
	cleared bool
}

// Buffered returns how much fits into the buffers of an HTTP/1 connection. In HTTP/2 the client controls it: 0.
func Buffered(r *http.Request) int {
	if r.ProtoMajor == 1 {
		return 32 << 10
	}
	return 0
}

// Move precedes each write of n bytes, and Done follows it. It extends the deadline now and then: a timer per event would
// cost more than the event.
func (d *WriteDeadline) Move(out *http.ResponseController, n int) {
	now := time.Now()
	d.began.Store(now.UnixNano())
	switch {
	case d.Timeout == 0:
	case d.moved.IsZero() && n <= d.Buffered:
		d.moved = now.Add(-d.Timeout) // the next write sets one
	case now.Sub(d.moved) > d.Timeout/4:
		d.moved = now
		d.mu.Lock()
		defer d.mu.Unlock()
		d.set = true
		_ = out.SetWriteDeadline(now.Add(d.Timeout)) // an error means a test connection without deadlines
	}
}

// Done ends a write.
func (d *WriteDeadline) Done() { d.began.Store(0) }

// Flush sends what is buffered.
func (d *WriteDeadline) Flush(out *http.ResponseController) error {
	d.began.Store(time.Now().UnixNano())
	defer d.Done()
	return out.Flush()
}

// Stuck reports whether a write is in progress that began [CutAfter] ago.
func (d *WriteDeadline) Stuck() bool {
	began := d.began.Load()
	return began > 0 && time.Since(time.Unix(0, began)) >= CutAfter
}

// Cut calls before and ends the write in progress, unless Clear was called.
func (d *WriteDeadline) Cut(out *http.ResponseController, before func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.cleared {
		before()
		d.set = true
		_ = out.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Clear removes the deadline: the connection may serve another request later.
func (d *WriteDeadline) Clear(out *http.ResponseController) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cleared = true; d.set {
		_ = out.SetWriteDeadline(time.Time{})
	}
}
