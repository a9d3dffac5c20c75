package inbound

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Protocols excludes the upgrade from HTTP/1.1 to HTTP/2, whose first body is read without a bound.
func Protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// Guard makes s reject requests with both a Content-Length and a Transfer-Encoding: a proxy in front may have used the
// other one (RFC 9112, 6.1). Package net/http hides the first, so the returned listener, on which s must serve, inspects
// connections. Guard also rejects a Transfer-Encoding in HTTP/1.0.
//
// s must have no ConnContext of its own. For TLS l decrypts. answer writes the rejection, an *[Error].
func Guard(s *http.Server, l net.Listener, answer func(http.ResponseWriter, *http.Request, error)) net.Listener {
	s.ConnContext = withConn
	next := s.Handler
	s.Handler = Answered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*watched)
		if c != nil && r.TLS == nil {
			if secure, is := c.Conn.(*tls.Conn); is {
				state := secure.ConnectionState()
				r.TLS = &state
			}
		}
		if c != nil && r.ProtoMajor == 1 {
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

const unread = 5 * time.Second

// Answered bounds the wait for unread request bodies: package net/http reads the rest of a body before it sends the
// answer.
func Answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		Unread(w, r)
	})
}

// Unread declares that the rest of the body of r is not read. Call it before a long answer; [Answered] calls it at the end.
func Unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.Body != http.NoBody && r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unread)) // an error means a test connection without deadlines
	}
}

type guarded struct{ net.Listener }

func (l guarded) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watched{over: over{c}}, nil
}

// watched does not know where a header ends and a body begins, so text in a body may look like a header. That matters only
// for requests with a Transfer-Encoding, and for HTTP/1.0.
type watched struct {
	over
	line   [len(transferEncoding)]byte // the beginning of the current line
	n      int                         // bytes in line
	length bool                        // since the last empty line
	chunks bool                        // since the last empty line
	both   atomic.Bool                 // both have come together
	coded  atomic.Bool                 // a Transfer-Encoding has come
}

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

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.inspect(p[:n])
	return n, err
}

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
