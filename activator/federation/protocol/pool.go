package protocol

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

const wait = 5 * time.Second

// Pool is the front door's side of one session's links. It is safe for concurrent use.
type Pool struct {
	closed func(net.Conn)
	// long is for requests that are not simple, without Connection: close, with which net/http's server would close it while
	// a body is sent.
	long *http.Transport

	mu      sync.Mutex        // guards the fields below
	idle    []*localhttp.Conn // the most recently used last
	retired bool
	more    bell.Bell // a waiter rings again if there are more
}

// NewPool returns an empty pool. closed is called once with each connection that has ended.
func NewPool(closed func(net.Conn)) *Pool {
	p := &Pool{closed: closed, more: bell.New()}
	p.long = &http.Transport{MaxIdleConnsPerHost: -1, DisableCompression: true, MaxResponseHeaderBytes: int64(api.MaxAnswerHeader),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := p.takeIdle(ctx)
			if err != nil {
				return nil, err
			}
			return c.NetConn(), nil
		}}
	return p
}

func (p *Pool) add(nc net.Conn) error {
	c := &conn{Conn: nc, closed: func() { p.closed(nc) }}
	if !p.putIdle(localhttp.NewConn(c, p.putIdle)) {
		_ = c.Close()
		return fmt.Errorf("link: the agent's session has ended, or has %d idle connections", MaxIdle)
	}
	return nil
}

func (p *Pool) putIdle(c *localhttp.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired || len(p.idle) >= MaxIdle {
		return false
	}
	p.idle = append(p.idle, c)
	p.more.Ring()
	return true
}

func (p *Pool) nextIdle() (c *localhttp.Conn, retired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle) - 1; n >= 0 {
		c, p.idle[n] = p.idle[n], nil
		p.idle = p.idle[:n]
	}
	if p.retired || len(p.idle) > 0 {
		p.more.Ring()
	}
	return c, p.retired
}

// errNone means that the agent has not seen the request.
var errNone = &net.OpError{Op: "dial", Net: "link", Err: errors.New("the agent has no connection for a request")}

func (p *Pool) takeIdle(ctx context.Context) (*localhttp.Conn, error) {
	var late *time.Timer
	for {
		c, retired := p.nextIdle()
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

// RoundTrip ignores the URL's host. Without a connection, the error is a [net.OpError] with Op "dial".
func (p *Pool) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if localhttp.Simple(r) {
		resp, err = localhttp.RoundTripOver(r, p.takeIdle)
	} else {
		resp, err = p.long.RoundTrip(r)
	}
	if err != nil && !errors.Is(err, errNone) && r.Context().Err() == nil {
		p.closeIdle(false) // a dead agent has lost all of them, which may not show here yet
	}
	return resp, err
}

// Retire closes idle connections now, and the others at the end of their answers.
func (p *Pool) Retire() { p.closeIdle(true) }

func (p *Pool) closeIdle(retire bool) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.retired = nil, p.retired || retire
	p.more.Ring()
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}
