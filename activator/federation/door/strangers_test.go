package door_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/federation/protocol"
)

// TestSilentStrangers: silent connections from one address, with and without TLS, block no agent, and are closed.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	f, pool, undisturbed := badFront(t)
	var silent []net.Conn
	dial := func(protocol string) {
		c, err := net.Dial("tcp", f.at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if protocol != "" {
			secure := tls.Client(c, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13})
			if err := secure.Handshake(); err != nil {
				t.Fatal(err)
			}
			c = secure
		}
		silent = append(silent, c)
	}
	for range 300 {
		dial("")
	}
	r, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", hello("east", "a"))
	if err != nil {
		t.Fatalf("beside 300 silent connections an agent is told: %v", err)
	}
	for range 70 {
		dial("h2")
	}
	if _, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", hello("east", "b")); err != nil {
		t.Fatalf("beside 70 connections without a Hello an agent is told: %v", err)
	}
	dial("h2")
	dial(protocol.LinkProtocol)
	for _, c := range silent { // each is closed, or this does not end
		_, _ = io.Copy(io.Discard, c)
	}
	undisturbed()
	if err := r.stream.CloseSend(); err != nil {
		t.Errorf("an agent that said Hello was ended, too: %v", err)
	}
}

// without is a listener in a process that runs out of file descriptors now and then.
type without struct {
	net.Listener
	n atomic.Int64
}

// Accept implements [net.Listener].
func (l *without) Accept() (net.Conn, error) {
	if l.n.Add(1)%2 == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestNoFiles: a front door survives running out of file descriptors for connections.
func TestNoFiles(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("east", "e", "east/*"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.at = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, &without{Listener: l}, door.TLS(server)) }()
	for _, agent := range []string{"a", "b"} {
		if _, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", hello("east", agent)); err != nil {
			t.Errorf("agent %s is told: %v", agent, err)
		}
	}
	f.logged.has(t, "WARN", "too many open files")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
