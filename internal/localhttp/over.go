package localhttp

import (
	"context"
	"net"
	"net/http"
)

// NewConn takes over nc. It calls idle when an answer was read to its end and the connection may carry another
// request; if idle returns false, the connection is closed.
func NewConn(nc net.Conn, idle func(*Conn) bool) *Conn {
	c := newConn(idle, "", nc)
	c.proven = true // even the first answer must name its request
	return c
}

// NetConn returns the underlying connection, which belongs to the caller while c is idle.
func (c *Conn) NetConn() net.Conn { return c.net.(net.Conn) }

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
		if resp, untouched, err := c.exchange(r, out, nil); err == nil || !untouched || ctx.Err() != nil {
			return resp, err
		}
	}
}
