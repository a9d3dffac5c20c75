package localhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Conn carries one request at a time, or is idle.
type Conn struct {
	put       func(*Conn) bool // makes it idle; false: it is not kept
	host      string
	net       io.ReadWriteCloser
	raw       syscall.RawConn // nil: the socket can't be polled
	head      *header         // beneath in
	in        *bufio.Reader
	proven    bool      // an answer has named its request
	echoes    bool      // an answer has repeated its request's X-Request-Id
	idleSince time.Time // written before it is idle
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 8<<10) }}

func newConn(put func(*Conn) bool, host string, nc io.ReadWriteCloser) *Conn {
	c := &Conn{put: put, host: host, net: nc, head: &header{from: nc}}
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c.head)
	below := any(nc)
	for over, ok := below.(interface{ NetConn() net.Conn }); ok; over, ok = below.(interface{ NetConn() net.Conn }) {
		below = over.NetConn()
	}
	if s, ok := below.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // nil if it is closed: the first write fails
	}
	return c
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.net.Close() }

// lastWord is how long a server may take to report the usage of a request that was left. A busy machine took more than a second.
const lastWord = 5 * time.Second

// leave ends the request. The server may still answer if it was asked for the usage.
func (c *Conn) leave(r *http.Request) {
	half, can := c.net.(interface {
		CloseWrite() error
		SetDeadline(t time.Time) error
	})
	if r.Header[control.HeaderUsage] == nil || r.Header[control.HeaderWait] != nil || !can || errors.Join(half.CloseWrite(), half.SetDeadline(time.Now().Add(lastWord))) != nil {
		c.Close()
	}
}

// After an error of exchange the connection is closed; untouched means that the other side has received nothing.
func (c *Conn) exchange(r *http.Request, out message, charge func(int64) error) (resp *http.Response, untouched bool, err error) {
	ctx := r.Context()
	stop := context.AfterFunc(ctx, func() { c.leave(r) })
	n, err := c.net.Write(out.bytes)
	if err == nil {
		resp, err = c.header(r, out.turn, charge)
	} else if n > 0 { // the server may have answered early and stopped reading
		if early, err2 := c.header(r, out.turn, charge); err2 == nil {
			early.Close = true
			resp, err = early, nil
		}
	}
	if err != nil {
		stop()
		c.Close()
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return nil, n == 0, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	b := &body{conn: c, ctx: ctx, stop: stop, in: resp.Body, keep: !resp.Close && !r.Close && (c.proven || resp.StatusCode < http.StatusBadRequest)}
	if resp.Body == http.NoBody {
		b.end(complete)
	} else {
		resp.Body = b
	}
	return resp, false, nil
}

const maxInterim = 8

func (c *Conn) header(r *http.Request, turn string, charge func(int64) error) (*http.Response, error) {
	c.head.begin(charge)
	for range maxInterim {
		resp, err := http.ReadResponse(c.in, r)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.head.end()
			return resp, c.inTurn(resp.Header, turn, r.Header.Get(requestID))
		}
		if resp.StatusCode < http.StatusContinue || resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("status %s, which was not asked for", resp.Status)
		}
		if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.Got1xxResponse != nil {
			if err := t.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("more than %d interim answers", maxInterim)
}

var errTurn = errors.New("the answer on the connection is another request's")

// requestID is repeated by some servers, such as vLLM with --enable-request-id-headers.
const requestID = "X-Request-Id"

// inTurn compares the IDs in an answer with the request's. The first answer on a connection may have none: it can't belong
// to another request.
func (c *Conn) inTurn(h http.Header, turn, id string) error {
	named, found := h[api.HeaderTurn]
	delete(h, api.HeaderTurn)
	switch {
	case len(named) == 1 && named[0] == turn:
		c.proven = true
	case found || c.proven:
		return errTurn
	}
	switch named := h.Get(requestID); {
	case c.proven || id == "" || named == "":
	case named == id:
		c.echoes = true
	case c.echoes:
		return errTurn
	}
	return nil
}

// body is an answer's body. Close may be called while Read blocks.
type body struct {
	conn  *Conn
	ctx   context.Context
	stop  func() bool // detaches the context; false: it has already ended
	in    io.ReadCloser
	keep  bool // the connection may be reused
	state atomic.Int32
}

const (
	underWay int32 = iota
	complete
	abandoned // closed early, or broken
)

func (b *body) Read(p []byte) (int, error) {
	switch b.state.Load() {
	case complete:
		return 0, io.EOF
	case abandoned:
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.in.Read(p)
	switch {
	case err == io.EOF:
		b.end(complete)
	case err != nil:
		b.end(abandoned)
		if b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.end(abandoned)
	return nil
}

func (b *body) end(how int32) {
	if !b.state.CompareAndSwap(underWay, how) {
		return
	}
	inTime := b.stop()
	if how == complete && b.keep && inTime && b.conn.in.Buffered() == 0 && b.conn.put(b.conn) {
		return
	}
	b.conn.Close()
	if how == complete { // no other goroutine reads now
		b.conn.in.Reset(nil)
		readers.Put(b.conn.in)
		b.conn.in = nil
	}
}
