package peertls

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
)

// recordHandshake is the first byte of a TLS connection; no HTTP request begins with it.
const recordHandshake = 0x16

type listener struct {
	net.Listener
	of *Identity
}

// Accept implements [net.Listener]. It does not wait for the first byte.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, of: l.of}, nil
}

// conn is a connection with or without TLS: its first byte decides, at the first read or write.
type conn struct {
	net.Conn
	of *Identity

	once   sync.Once
	chosen net.Conn
	err    error
}

func (c *conn) choose() (net.Conn, error) {
	c.once.Do(func() {
		first := make([]byte, 1)
		if _, c.err = c.Conn.Read(first); c.err != nil {
			return
		}
		var in net.Conn = &prefixed{c.Conn, io.MultiReader(bytes.NewReader(first), c.Conn)}
		if first[0] == recordHandshake {
			in = tls.Server(in, c.of.server())
		}
		c.chosen = in
	})
	return c.chosen, c.err
}

func (c *conn) Read(p []byte) (int, error) {
	in, err := c.choose()
	if err != nil {
		return 0, err
	}
	return in.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	in, err := c.choose()
	if err != nil {
		return 0, err
	}
	return in.Write(p)
}

type prefixed struct {
	net.Conn
	in io.Reader
}

func (p *prefixed) Read(into []byte) (int, error) { return p.in.Read(into) }
