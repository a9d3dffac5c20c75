package inbound

import (
	"bytes"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Protocols are what a door for clients speaks: HTTP/1.1, and HTTP/2 without TLS for who knows that it does. The
// upgrade of one to the other, whose first body is read without a bound, is not taken.
func Protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// Guard has s refuse requests that say twice where they end, by Content-Length and by
// Transfer-Encoding: a proxy in front may have believed the other one, and then what
// is a body here was a request there (RFC 9112, 6.1). Package net/http believes the second
// and hides the first, so the connections of the listener that is returned are inspected
// as they are read. A Transfer-Encoding in HTTP/1.0, which has none, is refused too. s serves
// on that listener, and must have no ConnContext of its own. TLS and HTTP/2 are not inspected;
// HTTP/2 has no such thing. s waits for bodies that nobody reads as [Answered] does. answer writes the refusal, an *[Error].
func Guard(s *http.Server, l net.Listener, answer func(http.ResponseWriter, *http.Request, error)) net.Listener {
	s.ConnContext = withConn
	next := s.Handler
	s.Handler = Answered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*watched); ok && r.ProtoMajor == 1 {
			if why := c.ambiguous(r); why != "" {
				w.Header().Set("Connection", "close")
				answer(w, r, &Error{Status: http.StatusBadRequest, Message: why})
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	return guarded{l}
}

// unread is how long a client may go on sending a body that nobody reads.
const unread = 5 * time.Second

// Answered is next for a server that waits a while, and not for ever, for the bodies of requests that next
// answered without reading them: package net/http reads what is left before it sends the answer.
func Answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		Unread(w, r)
	})
}

// Unread says that nobody reads the body of r, or what is left of it. Whoever writes a long answer to such
// a request says so before; at the end of a handler [Answered] does.
func Unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.Body != http.NoBody && r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unread)) // a connection without deadlines is a test's
	}
}

type guarded struct{ net.Listener }

// Accept implements net.Listener.
func (l guarded) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watched{Conn: c}, nil
}

// watched is a connection whose lines are inspected. It does not know where a header ends
// and a body begins: of both, lines between two empty ones belong together. So what is
// taken for a header of both kinds may have been the text of one in a body, which
// matters only to requests with a Transfer-Encoding, and to those of HTTP/1.0.
type watched struct {
	net.Conn
	line   [len(transferEncoding)]byte // the beginning of the line that is being read
	n      int                         // bytes of the line, as many as matter
	length bool                        // since the last empty line there was a Content-Length
	chunks bool                        // and a Transfer-Encoding
	both   atomic.Bool                 // there were both once
	coded  atomic.Bool                 // there was a Transfer-Encoding once
}

// ambiguous says why others may believe that r ends elsewhere; empty: they don't.
func (c *watched) ambiguous(r *http.Request) string {
	switch {
	case r.ProtoMinor == 0 && c.coded.Load():
		return "the request is one of HTTP/1.0, which has no Transfer-Encoding: send a Content-Length"
	case len(r.TransferEncoding) > 0 && c.both.Load():
		return "the request has a Content-Length and a Transfer-Encoding: send one of them"
	}
	return ""
}

const (
	contentLength    = "content-length:"
	transferEncoding = "transfer-encoding:"
)

// Read reads, and inspects the lines.
func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.inspect(p[:n])
	return n, err
}

// NetConn is the connection below.
func (c *watched) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent, so that an answer is read before the connection ends.
func (c *watched) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// inspect takes the next bytes.
func (c *watched) inspect(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		if c.n < len(c.line) {
			c.n += copy(c.line[c.n:], part)
		}
		if end < 0 {
			return
		}
		c.endLine()
		p = p[end+1:]
	}
}

// endLine takes the line for what it is.
func (c *watched) endLine() {
	line := c.line[:c.n]
	c.n = 0
	switch {
	case len(bytes.TrimRight(line, "\r")) == 0:
		c.length, c.chunks = false, false
	case begins(line, contentLength):
		c.length = true
	case begins(line, transferEncoding):
		c.chunks = true
		c.coded.Store(true)
	}
	if c.length && c.chunks {
		c.both.Store(true)
	}
}

func begins(line []byte, with string) bool {
	return len(line) >= len(with) && bytes.EqualFold(line[:len(with)], []byte(with))
}
