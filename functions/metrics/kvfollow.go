package metrics

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/rouse-dev/rouse/internal/bell"
)

const (
	kvRetry   = 250 * time.Millisecond
	handshake = 10 * time.Second
	// early is the number of batches of a server's first moments, which are only from probes: clients' requests come later.
	early = 64
)

// Follower follows the KV cache events of a vLLM or SGLang, across its restarts. It knows how many tokens the prefix cache has, and keeps
// none.
//
//  1. It connects to the server's ZeroMQ socket (ZMTP 3) as soon as that exists, and again after a broken connection.
//  2. Each message is a numbered batch of events (MessagePack).
//  3. A server's cache is empty when it starts, with batch 0. After a missing number, or a batch that can't be decoded, the cache is
//     unknown until the server has cleared it, as it does for each sleep.
//
// The events of vLLM 0.9 to 0.32, which differ in shape, are supported; unknown fields are skipped.
type Follower struct {
	endpoint string
	log      *slog.Logger

	mu    sync.Mutex // guards cache
	cache kvCache
	seq   uint64 // of the last batch; belongs to Run
}

// NewFollower returns a follower of the events at ipc://PATH or tcp://HOST:PORT.
func NewFollower(endpoint string, log *slog.Logger) *Follower {
	return &Follower{endpoint: endpoint, log: log}
}

// Tokens returns how many tokens the cache has. known is false if nothing is published, or events were missed. It is safe for many
// goroutines.
func (f *Follower) Tokens() (tokens int64, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cache.Tokens()
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		connected, err := f.follow(ctx)
		f.change((*kvCache).lose)
		if connected {
			f.log.Debug("KV cache events disconnected", "endpoint", f.endpoint, "error", err)
		}
		_ = bell.Sleep(ctx, kvRetry)
	}
}

func (f *Follower) follow(ctx context.Context) (connected bool, err error) {
	network, address, err := split(f.endpoint)
	if err != nil {
		return false, err
	}
	conn, err := (&net.Dialer{Timeout: handshake}).DialContext(ctx, network, address)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handshake))
	z, err := zmq4.Open(conn, null.Security(), zmq4.Sub, nil, false, nil)
	if err != nil {
		return false, fmt.Errorf("greet: %w", err)
	}
	if err := z.SendMsg(zmq4.NewMsg([]byte{1})); err != nil { // every topic
		return false, fmt.Errorf("subscribe: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	for first := true; ; first = false {
		m, err := z.RecvMsg()
		if err != nil {
			return true, fmt.Errorf("receive: %w", err)
		}
		f.take(m.Frames, first)
	}
}

// take handles one message: a topic, a number, and a batch; first: of this connection.
func (f *Follower) take(frames [][]byte, first bool) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		f.change((*kvCache).lose)
		return
	}
	seq := binary.BigEndian.Uint64(frames[1])
	switch {
	case seq == 0, first && seq < early:
		f.change((*kvCache).begin)
	case first || seq != f.seq+1:
		f.change((*kvCache).lose)
	}
	f.seq = seq
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := decode(frames[2], f.cache.see); err != nil {
		f.cache.lose()
		f.log.Debug("invalid batch of KV cache events discarded", "endpoint", f.endpoint, "error", err)
	}
}

func (f *Follower) change(how func(*kvCache)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(&f.cache)
}

func split(endpoint string) (network, address string, err error) {
	scheme, address, found := strings.Cut(endpoint, "://")
	switch {
	case found && scheme == "ipc":
		return "unix", address, nil
	case found && scheme == "tcp":
		return "tcp", address, nil
	}
	return "", "", fmt.Errorf("%.100q: want ipc://PATH or tcp://HOST:PORT", endpoint)
}
