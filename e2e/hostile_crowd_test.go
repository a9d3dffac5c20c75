package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hostileCrowd is a number of clients of one server, each with an address of its own on the loopback network.
type hostileCrowd struct {
	// Address is the server's host and port.
	Address string
	// Clients is how many there are, a third of each kind.
	Clients int
	// Sources is how many addresses they come from: 127.0.1.1 and so on (Linux has them all).
	Sources int

	open, refused atomic.Int64
}

// Paces of the crowd.
const (
	dripEvery  = 2 * time.Second // of a client that sends slowly
	floodEvery = time.Second     // of a client that sends without end
	floodPiece = 16 << 10
	comeAgain  = 2 * time.Second
	opening    = 2000 // connections a second, while the crowd gathers
)

// Open is how many are connected and have sent their header.
func (c *hostileCrowd) Open() int { return int(c.open.Load()) }

// Refused is how often one was cut off.
func (c *hostileCrowd) Refused() int { return int(c.refused.Load()) }

// Run attacks until ctx ends.
func (c *hostileCrowd) Run(ctx context.Context) {
	var all sync.WaitGroup
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := range c.Clients {
		if i%(opening/100) == 0 {
			select {
			case <-pace.C:
			case <-ctx.Done():
			}
		}
		all.Go(func() { c.client(ctx, i) })
	}
	all.Wait()
}

// client is one of them.
func (c *hostileCrowd) client(ctx context.Context, i int) {
	source := &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i%c.Sources/250), byte(1+i%c.Sources%250))}
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{LocalAddr: source, Timeout: 10 * time.Second}).DialContext(ctx, "tcp", c.Address)
		if err == nil {
			c.attack(ctx, conn, i)
			_ = conn.Close()
		}
		pause(ctx, comeAgain)
	}
}

// attack continues until the connection or ctx ends.
func (c *hostileCrowd) attack(ctx context.Context, conn net.Conn, i int) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	header := "POST /v1/chat/completions HTTP/1.1\r\nHost: " + c.Address + "\r\nContent-Type: application/json\r\n"
	piece, every := "", time.Duration(0)
	switch i % 3 {
	case 0: // announced and never sent
		header += "Content-Length: 67108864\r\n\r\n"
	case 1: // slow
		header += "Content-Length: 1000000\r\n\r\n"
		piece, every = "x", dripEvery
	case 2: // without end
		header += "Transfer-Encoding: chunked\r\n\r\n"
		piece, every = fmt.Sprintf("%x\r\n%s\r\n", floodPiece, flood), floodEvery
	}
	if _, err := conn.Write([]byte(header)); err != nil {
		return
	}
	c.open.Add(1)
	defer c.open.Add(-1)
	cut := make(chan struct{}) // closed when the server has answered or closed
	go func() {
		defer close(cut)
		_, _ = conn.Read(make([]byte, 1))
	}()
	defer func() { _ = conn.Close(); <-cut }()
	for {
		var next <-chan time.Time
		if every > 0 {
			next = time.After(every)
		}
		select {
		case <-next:
			if _, err := conn.Write([]byte(piece)); err == nil {
				continue
			}
		case <-cut:
		case <-ctx.Done():
			return
		}
		c.refused.Add(1)
		return
	}
}

// flood is the piece of data that is sent without end.
var flood = strings.Repeat("x", floodPiece)

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
