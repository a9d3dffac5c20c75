package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// wait bounds how long a request waits for an idle connection.
const wait = 5 * time.Second

// Pool is the front door's half: the connections of one session of an agent. It is safe for many goroutines.
type Pool struct {
	closed func(net.Conn)
	long   *http.Transport // for what is not simple; it uses a connection once, and does not say so: net/http's server would then end it while a body is sent

	mu      sync.Mutex        // guards what follows
	idle    []*localhttp.Conn // the one that was used last is the last
	retired bool
	more    chan struct{} // sent to where one is idle, or the pool is retired, and received from by who waits; one place: who receives sends again where there are more
}

// NewPool makes a pool without connections. closed is called once with each one that has ended.
func NewPool(closed func(net.Conn)) *Pool {
	p := &Pool{closed: closed, more: make(chan struct{}, 1)}
	p.long = &http.Transport{MaxIdleConnsPerHost: -1, DisableCompression: true, MaxResponseHeaderBytes: int64(api.MaxAnswerHeader),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := p.take(ctx)
			if err != nil {
				return nil, err
			}
			return c.NetConn(), nil
		}}
	return p
}

// add makes a connection idle, or closes it.
func (p *Pool) add(nc net.Conn) error {
	c := &conn{Conn: nc, closed: func() { p.closed(nc) }}
	if !p.put(localhttp.NewConn(c, p.put)) {
		_ = c.Close()
		return fmt.Errorf("link: the agent's session has ended, or has %d idle connections", MaxIdle)
	}
	return nil
}

// put makes a connection idle. It returns false if it is not wanted.
func (p *Pool) put(c *localhttp.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired || len(p.idle) >= MaxIdle {
		return false
	}
	p.idle = append(p.idle, c)
	p.signal()
	return true
}

// signal wakes one that waits. The caller holds mu.
func (p *Pool) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// next returns an idle connection; nil: there is none, and if the pool is retired there never will be.
func (p *Pool) next() (c *localhttp.Conn, retired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle) - 1; n >= 0 {
		c, p.idle[n] = p.idle[n], nil
		p.idle = p.idle[:n]
	}
	if p.retired || len(p.idle) > 0 {
		p.signal()
	}
	return c, p.retired
}

// errNone is why there is no connection for a request: nobody has seen it.
var errNone = &net.OpError{Op: "dial", Net: "link", Err: errors.New("the agent has no connection for a request")}

// take returns an idle connection of which nothing can be read, and waits for one if there is none.
func (p *Pool) take(ctx context.Context) (*localhttp.Conn, error) {
	var late *time.Timer
	for {
		c, retired := p.next()
		switch {
		case c != nil && c.Quiet():
			return c, nil
		case c != nil:
			c.Close()
			continue
		case retired:
			return nil, errNone
		case late == nil:
			late = time.NewTimer(wait)
			defer late.Stop()
		}
		select {
		case <-p.more:
		case <-late.C:
			return nil, errNone
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// RoundTrip sends a request to the agent, and implements [http.RoundTripper]. The host of its URL is not looked at. Without a connection
// the error is a [net.OpError] of "dial".
func (p *Pool) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if localhttp.Simple(r) {
		resp, err = localhttp.RoundTripOver(r, p.take)
	} else {
		resp, err = p.long.RoundTrip(r)
	}
	if err != nil && !errors.Is(err, errNone) && r.Context().Err() == nil {
		p.closeIdle(false) // an agent that has died has ended them all, which may not have come here yet: one failure is enough
	}
	return resp, err
}

// Retire closes the idle connections, and each other one at the end of its answer. No further request is taken.
func (p *Pool) Retire() { p.closeIdle(true) }

// closeIdle closes the idle connections; retire: no other is taken.
func (p *Pool) closeIdle(retire bool) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.retired = nil, p.retired || retire
	p.signal()
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}
