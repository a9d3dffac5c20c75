// Package inbound reads whole request bodies and bounds the resources that a hostile client can use.
//
// A promised length costs nothing: a buffer is charged ([Budget]) before it grows with the bytes that arrive. If memory is
// short, this body is refused, or another one that holds more.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Config bounds bodies, in bytes. Zero fields take their defaults.
type Config struct {
	// MaxBody bounds one body. Default 64 MiB.
	MaxBody int64
	// Memory bounds all bodies and their requests. Default 1 GiB. One client gets half of it.
	Memory int64
}

// Within returns the configuration for a process with a memory limit; 0: none.
func Within(limit int64) Config {
	c := Config{}.WithDefaults()
	if limit > 0 {
		c.Memory = min(c.Memory, limit/2)
		c.MaxBody = min(c.MaxBody, c.Memory/2)
	}
	return c
}

// WithDefaults returns c with zero fields set to their defaults.
func (c Config) WithDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 20
	}
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	return c
}

// Validate returns an error for the first invalid field. Zero fields are valid.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case c.MaxBody < 0:
		return fmt.Errorf("the limit of a body is %d bytes: want more than 0", c.MaxBody)
	case c.Memory < c.MaxBody:
		return fmt.Errorf("all bodies together may take %s, less than one may have (%s): raise it", size(c.Memory), size(c.MaxBody))
	}
	return nil
}

const (
	// Idle is how long a client may send nothing.
	Idle = 10 * time.Second
	// Rate is the least bytes per second, on average after Idle.
	Rate = 1 << 10
)

// requestCost is the approximate memory of a request besides its body.
const requestCost = 32 << 10

// Door reads bodies. It is safe for concurrent use.
type Door struct {
	cfg    Config
	memory *Budget
}

// New returns a Door. The configuration must be valid.
func New(cfg Config) *Door {
	cfg = cfg.WithDefaults()
	// a growing body takes up to half as much again
	one := cfg.MaxBody*3/2 + requestCost + 256<<10
	limit := max(cfg.Memory, one)
	return &Door{cfg: cfg, memory: NewBudget(limit, max(limit/2, one))}
}

// Memory returns the budget that bodies are charged to.
func (d *Door) Memory() *Budget { return d.memory }

// Fits reports whether [Door.Read] accepts the length and the form of r's body.
func (d *Door) Fits(r *http.Request) bool {
	return r.ContentLength <= d.cfg.MaxBody && r.Header.Get("Content-Encoding") == ""
}

// Read reads the body of r to its end, at the expense of client. The error is the context's if the client left, otherwise an
// *[Error]:
//
//   - 400: the body ends before its Content-Length; 413: it exceeds the limit; 415: it is compressed;
//   - 408: it comes too slowly;
//   - 429: the client's share of the memory is used; 503: all memory is used.
//
// After an error the connection, in HTTP/2 only the stream, ends with the answer.
func (d *Door) Read(w http.ResponseWriter, r *http.Request, client string) (*Body, error) {
	if err := uncompressed(w, r); err != nil {
		return nil, err
	}
	if from, is := r.Body.(*reader); is && r.ContentLength <= d.cfg.MaxBody { // from this process, which has charged it
		if of := from.share(); of != nil {
			r.Body = http.NoBody
			return d.shared(of, client), nil
		}
	}
	in := &reading{door: d, r: r, control: http.NewResponseController(w), began: time.Now()}
	in.account = d.memory.Open(client, in.giveWay)
	body, err := in.read()
	if err != nil {
		GiveBack(in.buf)
		in.account.Close()
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		return nil, in.explain(err)
	}
	r.Body = http.NoBody
	return body, nil
}

// shared takes over a reference to another body.
func (d *Door) shared(of *Body, client string) *Body {
	b := &Body{door: d, data: of.data, account: d.memory.Open(client, func() {}), of: of}
	b.refs.Store(1)
	if of.object != nil {
		b.object = of.object.Clone()
	}
	return b
}

// uncompressed rejects a compressed body: the sender would choose the expanded size.
func uncompressed(w http.ResponseWriter, r *http.Request) error {
	for _, name := range r.Header["Content-Encoding"] {
		if name != "" && !strings.EqualFold(name, "identity") {
			w.Header().Set("Accept-Encoding", "identity") // RFC 9110, 15.5.16
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close")
			}
			return refuse(http.StatusUnsupportedMediaType, "", "the body's Content-Encoding is %.40q: send it uncompressed", name)
		}
	}
	return nil
}

type reading struct {
	door    *Door
	r       *http.Request
	control *http.ResponseController
	account *Account
	began   time.Time
	moved   time.Time
	buf     []byte
	n       int

	mu      sync.Mutex // guards yielded, and orders changes of the deadline
	yielded bool       // the deadline has passed and stays so
}

func (in *reading) giveWay() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.yielded = true
	_ = in.control.SetReadDeadline(time.Unix(1, 0)) // an error means a test connection without deadlines
}

func (in *reading) deadline(t time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.yielded {
		_ = in.control.SetReadDeadline(t)
	}
}

var errTooLarge = errors.New("too large")

func (in *reading) read() (*Body, error) {
	limit, want := in.door.cfg.MaxBody, in.r.ContentLength
	if want > limit {
		return nil, errTooLarge
	}
	if err := in.account.Take(in.r.Context(), requestCost); err != nil {
		return nil, err
	}
	if want == 0 || in.r.Body == nil {
		return in.whole()
	}
	most := limit + 1 // to see the end without growing
	if want > 0 {
		most = want + 1
	}
	for {
		if in.n == len(in.buf) {
			if err := in.grow(most); err != nil {
				return nil, err
			}
		}
		in.expect()
		k, err := in.r.Body.Read(in.buf[in.n:])
		in.n += k
		switch {
		case int64(in.n) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return in.whole()
		case err != nil:
			return nil, err
		}
	}
}

func (in *reading) whole() (*Body, error) {
	if err := in.account.Settle(); err != nil {
		return nil, err
	}
	if !in.moved.IsZero() {
		in.deadline(time.Time{})
	}
	b := &Body{door: in.door, whole: in.buf, data: in.buf[:in.n], account: in.account}
	b.refs.Store(1)
	return b, nil
}

// grow enlarges the buffer stepwise, whatever length was promised.
func (in *reading) grow(most int64) error {
	size := int64(1) << smallest
	if in.buf != nil {
		size = 2 * int64(len(in.buf))
		if most <= 2*size {
			size = most
		}
	}
	size = fitting(min(size, most))
	if err := in.account.Take(in.r.Context(), size); err != nil {
		return err
	}
	larger := Grab(size)
	copy(larger, in.buf)
	GiveBack(in.buf)
	in.account.Give(int64(len(in.buf)))
	in.buf = larger
	return nil
}

// expect extends the read deadline now and then: a timer per read would cost more than the read.
func (in *reading) expect() {
	now := time.Now()
	if !in.moved.IsZero() && now.Sub(in.moved) < Idle/4 {
		return
	}
	in.moved = now
	slowest := in.began.Add(Idle + time.Duration(float64(in.n)/Rate*float64(time.Second)))
	if next := now.Add(Idle); next.Before(slowest) {
		slowest = next
	}
	in.deadline(slowest)
}

func (d *Door) refusal(err error) error {
	switch {
	case errors.Is(err, ErrGaveWay), errors.Is(err, ErrFull):
		return refuse(http.StatusServiceUnavailable, codeFull, "the bodies of all requests take %s already, as much as may be: try again, or send less at once", size(d.cfg.Memory))
	case errors.Is(err, ErrShare):
		return refuse(http.StatusTooManyRequests, codeFull, "the bodies of your requests take as much memory as one client's may: wait for their answers, or send less at once")
	}
	return nil
}

func (in *reading) explain(err error) error {
	in.mu.Lock()
	gaveWay := in.yielded
	in.mu.Unlock()
	cfg := in.door.cfg
	if gaveWay {
		err = ErrGaveWay
	}
	if known := in.door.refusal(err); known != nil {
		return known
	}
	switch {
	case errors.Is(err, errTooLarge):
		return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the body is larger than the limit of %s", size(cfg.MaxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "", "the body comes too slowly (%d bytes in %s): send at least %s a second, without pauses of %s",
			in.n, time.Since(in.began).Round(time.Second), size(Rate), Idle)
	case errors.Is(err, io.ErrUnexpectedEOF):
		// Before the context: the end of the client's sending side also ends the context, while the client may still read.
		return refuse(http.StatusBadRequest, "", "the body ends after %d bytes, before its Content-Length or last chunk", in.n)
	case in.r.Context().Err() != nil:
		return in.r.Context().Err()
	case errors.Is(err, context.Canceled):
		return err
	}
	return refuse(http.StatusBadRequest, "", "read the body: %v", err)
}

// Server is an [http.Server] whose Shutdown closes connections that have not carried a request yet, for which
// [http.Server.Shutdown] waits up to five seconds.
type Server struct {
	*http.Server

	mu     sync.Mutex // guards what follows
	unused map[net.Conn]bool
	ending bool
}

// NewServer takes over s, which must not serve yet and must have no ConnState hook.
func NewServer(s *http.Server) *Server {
	c := &Server{Server: s, unused: map[net.Conn]bool{}}
	s.ConnState = c.changed
	return c
}

func (s *Server) changed(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.unused, conn)
		return
	}
	if s.ending {
		_ = conn.Close()
		return
	}
	s.unused[conn] = true
}

// Shutdown blocks until all requests are answered. If ctx ends first, it returns ctx's error and leaves the rest open.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	for conn := range s.unused {
		_ = conn.Close()
	}
	s.mu.Unlock()
	return s.Server.Shutdown(ctx)
}
