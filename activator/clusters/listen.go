package clusters

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/rouse-dev/rouse/internal/exchangerpc"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/link"
)

// strangers bound the connections of which no session or link has come.
var strangers = inbound.Limits{All: 256, Address: 64, Wait: 5 * time.Second}

// TLS is cfg with what a front door's port needs: TLS 1.3, and the protocols of control streams and links.
func TLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.MinVersion = tls.VersionTLS13
	cfg.NextProtos = []string{"h2", link.Protocol}
	if cfg.ClientCAs != nil && cfg.ClientAuth == tls.NoClientCert {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return cfg
}

// Serve takes agents in at l until ctx ends, and then ends their sessions and links. cfg comes from [TLS].
func (f *Front) Serve(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	l = inbound.NewListener(l, strangers, f.log)
	control := &handed{conns: make(chan net.Conn), done: make(chan struct{}), addr: l.Addr()}
	server := exchangerpc.NewServer(f, grpc.Creds(shaken{}))
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(control) }) // ends with Stop
	var ended error
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			ended = err
			break
		}
		running.Go(func() { f.accept(ctx, tls.Server(conn, cfg), control) })
	}
	server.Stop()
	f.closeLinks()
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept agents: %w", ended)
}

// accept shakes hands and gives the connection to what its protocol says.
func (f *Front) accept(ctx context.Context, conn *tls.Conn, control *handed) {
	if err := conn.HandshakeContext(ctx); err != nil {
		f.stranger(conn, err)
		return
	}
	switch conn.ConnectionState().NegotiatedProtocol {
	case "h2":
		control.give(conn)
	case link.Protocol:
		f.join(ctx, conn)
	default:
		f.stranger(conn, errors.New("it speaks neither protocol of an agent"))
	}
}

// strangersEvery is how often one is logged: anybody may dial.
const strangersEvery = 10 * time.Second

// stranger sends away who is no agent.
func (f *Front) stranger(conn *tls.Conn, err error) {
	_ = conn.Close()
	f.metrics.refused.Inc()
	f.mu.Lock()
	level := slog.LevelDebug
	if f.strange() {
		level = slog.LevelWarn
	}
	f.mu.Unlock()
	f.log.Log(context.Background(), level, "who dialled is no agent", "from", conn.RemoteAddr().String(), "error", err)
}

// join makes a link of a connection, if a session knows it.
func (f *Front) join(ctx context.Context, conn *tls.Conn) {
	var s *session
	l, err := link.Accept(ctx, conn, f.cfg.Link, func(h link.Hello) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s = f.sessions[h.Agent]; s == nil || s.id != h.Session || subtle.ConstantTimeCompare([]byte(s.secret), []byte(h.Secret)) != 1 {
			return errors.New("no session of an agent knows this link")
		}
		if len(s.links) >= maxLinks {
			return fmt.Errorf("agent %s has %d links", h.Agent, len(s.links))
		}
		return nil
	})
	if err != nil {
		f.log.Warn("a link is refused", "from", conn.RemoteAddr().String(), "error", err)
		f.metrics.refused.Inc()
		return
	}
	conn.NetConn().(*inbound.Conn).Begin()
	f.mu.Lock()
	s.links = append(s.links, l)
	f.links[l] = true
	f.mu.Unlock()
	select {
	case s.linked <- struct{}{}:
	default: // it had one before
	}
	f.metrics.links.WithLabelValues(s.hello.Cluster).Inc()
	go f.watch(s, l)
}

// maxLinks bounds the links of one session.
const maxLinks = 8

// watch forgets a link when it has ended.
func (f *Front) watch(s *session, l *link.Link) {
	<-l.Done()
	f.metrics.links.WithLabelValues(s.hello.Cluster).Dec()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, l)
	for i, other := range s.links {
		if other == l {
			s.links = append(s.links[:i:i], s.links[i+1:]...)
			return
		}
	}
}

// closeLinks ends every link.
func (f *Front) closeLinks() {
	f.mu.Lock()
	all := slices.Collect(maps.Keys(f.links))
	f.mu.Unlock()
	for _, l := range all {
		_ = l.Close()
	}
}

// handed is a listener of connections that somebody else has accepted.
type handed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// give hands a connection over, or closes it where nobody takes any more.
func (h *handed) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}

// Accept implements [net.Listener].
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements [net.Listener].
func (h *handed) Addr() net.Addr { return h.addr }

// shaken are the credentials of connections whose handshake is over.
type shaken struct {
	credentials.TransportCredentials
}

// secured has what TLS says of an agent's connection.
type secured struct {
	credentials.TLSInfo
	conn *inbound.Conn
}

// ServerHandshake implements [credentials.TransportCredentials].
func (shaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil, errors.New("no TLS connection")
	}
	return c, secured{credentials.TLSInfo{State: t.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, t.NetConn().(*inbound.Conn)}, nil
}

// Info implements [credentials.TransportCredentials].
func (shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (s shaken) Clone() credentials.TransportCredentials { return s }
