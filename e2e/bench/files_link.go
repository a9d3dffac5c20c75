package main

import (
	"context"
	"net"

	"golang.org/x/time/rate"
)

// link is a machine's connection to the network.
type link struct{ up, down *rate.Limiter }

// burst is the number of bytes that a link passes on at once.
const burst = 512 << 10

func newLink(bytesPerSecond int) *link {
	return &link{rate.NewLimiter(rate.Limit(bytesPerSecond), burst), rate.NewLimiter(rate.Limit(bytesPerSecond), burst)}
}

// listen listens on loopback, behind the link.
func (l *link) listen() (net.Listener, error) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return listener{in, l}, nil
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c, l}, nil
}

type listener struct {
	net.Listener
	link *link
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c, l.link}, nil
}

// conn is a connection over a link.
type conn struct {
	net.Conn
	link *link
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), burst)])
	if n > 0 {
		_ = c.link.down.WaitN(context.Background(), n) // n is not more than a burst
	}
	return n, err
}

func (c conn) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		n := min(len(b), burst)
		_ = c.link.up.WaitN(context.Background(), n) // n is not more than a burst
		n, err = c.Conn.Write(b[:n])
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}
