package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// LinkProtocol is the ALPN protocol of a link.
const LinkProtocol = "rouse-link/2"

// MaxIdle bounds the idle connections of one session.
const MaxIdle = 256

const (
	maxHello     = 4 << 10
	helloTimeout = 5 * time.Second
	maxHeader    = 128 << 10 // of a request: the front door's limit for clients, plus what it adds
)

// LinkHello is the first message of a connection, from the agent.
type LinkHello struct {
	// Session is the control stream that the connection belongs to.
	Agent   string `json:"agent"`
	Session string `json:"session"`
	// Secret keeps other agents' connections from joining the session.
	Secret string `json:"secret"`
}

// AcceptLink reads a connection's LinkHello, and adds the connection to the pool that admit returns. After an error the
// connection is closed.
func AcceptLink(ctx context.Context, nc net.Conn, admit func(LinkHello) (*Pool, error)) error {
	hello, err := readHello(ctx, nc)
	var p *Pool
	if err == nil {
		p, err = admit(hello)
	}
	if err != nil {
		_ = nc.Close()
		return err
	}
	return p.add(nc)
}

func readHello(ctx context.Context, nc net.Conn) (h LinkHello, err error) {
	until := time.Now().Add(helloTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := nc.SetReadDeadline(until); err != nil {
		return h, fmt.Errorf("link: set a deadline: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })()
	var size [2]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return h, fmt.Errorf("link: read the first message: %w", err)
	}
	n := int(size[0])<<8 | int(size[1])
	if n > maxHello {
		return h, fmt.Errorf("link: a first message of %d bytes: want at most %d", n, maxHello)
	}
	line := make([]byte, n)
	if _, err := io.ReadFull(nc, line); err != nil {
		return h, fmt.Errorf("link: read the first message: %w", err)
	}
	if err := api.Decode(bytes.NewReader(line), &h); err != nil {
		return h, fmt.Errorf("link: the first message: %w", err)
	}
	return h, nc.SetReadDeadline(time.Time{})
}

func (h LinkHello) write(nc net.Conn) error {
	line, err := json.Marshal(h)
	if err == nil && len(line) > maxHello {
		err = fmt.Errorf("%d bytes: want at most %d", len(line), maxHello)
	}
	if err == nil {
		_, err = nc.Write(append([]byte{byte(len(line) >> 8), byte(len(line))}, line...))
	}
	if err != nil {
		return fmt.Errorf("link: send the first message: %w", err)
	}
	return nil
}

// conn does not wait in Close for a peer that reads nothing, as TLS does to send its alert.
type conn struct {
	net.Conn
	once   sync.Once
	closed func() // may be nil
}

func (c *conn) Close() error {
	below := c.Conn
	if over, ok := below.(interface{ NetConn() net.Conn }); ok {
		below = over.NetConn()
	}
	err := below.Close()
	if c.closed != nil {
		c.once.Do(c.closed)
	}
	return err
}

// NetConn returns the underlying connection.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Probe makes the kernel close a TCP connection whose peer is silent for the duration dead. It ignores other connections.
func Probe(nc net.Conn, dead time.Duration) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: dead / 2, Interval: dead / 8, Count: 4}) // fails if it is closed, as its next use says
	limitUnanswered(tcp, dead)
}

// Listener is a [net.Listener] for connections opened elsewhere.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// NewListener returns a Listener with the address addr.
func NewListener(addr net.Addr) *Listener {
	return &Listener{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// Give passes a connection to Accept, or closes it if the Listener is closed.
func (l *Listener) Give(nc net.Conn) {
	select {
	case l.conns <- nc:
	case <-l.done:
		_ = nc.Close()
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return l.addr }
