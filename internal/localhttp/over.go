package localhttp

import (
	"context"
	"net"
	"net/http"
)

// Conn is a connection opened by the caller, to a server that names the requests it answers ([api.InTurn]). It
// carries one request at a time.
type Conn struct{ conn *conn }

// NewConn takes over nc. It calls idle when an answer was read to its end and the connection may carry another
// request; if idle returns false, the connection is closed.
func NewConn(nc net.Conn, idle func(*Conn) bool) *Conn {
	c := &Conn{}
	c.conn = newConn(func(*conn) bool { return idle(c) }, "", nc)
	c.conn.proven = true // even the first answer must name its request
	return c
}

// Quiet reports whether the idle connection is open and has nothing to read. It does not block.
func (c *Conn) Quiet() bool { return c.conn.quiet() }

// NetConn returns the underlying connection, which belongs to the caller while c is idle.
func (c *Conn) NetConn() net.Conn { return c.conn.net.(net.Conn) }

// Close closes the connection.
func (c *Conn) Close() { c.conn.close() }

// RoundTripOver is [Transport.RoundTrip] over the connection that take returns, for a [Simple] request. It calls take
// again if the other side has received nothing of the request, and returns take's error.
func RoundTripOver(r *http.Request, take func(context.Context) (*Conn, error)) (*http.Response, error) {
	out, err := whole(r)
	if err != nil {
		return nil, err
	}
	defer out.release()
	ctx := r.Context()
	for {
		c, err := take(ctx)
		if err != nil {
			return nil, err
		}
		if resp, untouched, err := c.conn.exchange(r, out, nil); err == nil || !untouched || ctx.Err() != nil {
			return resp, err
		}
	}
}
