package localhttp

import (
	"context"
	"net"
	"net/http"
)

// Conn is a connection that somebody else has opened, to a server that names what it answers ([api.InTurn]). It carries one request at a time.
type Conn struct{ conn *conn }

// NewConn takes nc over. It calls idle when an answer was read to its end and the connection may carry another request; false closes it.
func NewConn(nc net.Conn, idle func(*Conn) bool) *Conn {
	c := &Conn{}
	c.conn = newConn(func(*conn) bool { return idle(c) }, "", nc)
	c.conn.proven = true // the first answer, too, must name its request
	return c
}

// Quiet reports whether the connection, which is idle, is open and has nothing to be read. It does not block.
func (c *Conn) Quiet() bool { return c.conn.quiet() }

// NetConn returns the connection below, which is the caller's if c is idle.
func (c *Conn) NetConn() net.Conn { return c.conn.net.(net.Conn) }

// Close closes the connection.
func (c *Conn) Close() { c.conn.close() }

// Simple reports whether [RoundTripOver] carries r.
func Simple(r *http.Request) bool { return simple(r) }

// RoundTripOver is [Transport.RoundTrip] over the connection that take returns, for a request that is [Simple]. It calls take again if the other
// side has seen nothing of the request, and returns take's error.
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
