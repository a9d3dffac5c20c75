package door

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/internal/inbound"
)

var strangers = inbound.Limits{All: 256, Address: 64, Wait: 5 * time.Second}

// TLS returns cfg for a front door's port.
func TLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.MinVersion = tls.VersionTLS13
	cfg.NextProtos = []string{"h2", protocol.LinkProtocol}
	cfg.DynamicRecordSizingDisabled = true
	if cfg.ClientCAs != nil && cfg.ClientAuth == tls.NoClientCert {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return cfg
}

// Serve accepts agents at l until ctx ends, and then ends their sessions and links. cfg comes from [TLS].
func (f *Front) Serve(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	l = inbound.NewListener(l, strangers, f.log)
	control := protocol.NewListener(l.Addr())
	server := protocol.NewServer(f, grpc.Creds(shaken{}))
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
		protocol.Probe(conn.(*inbound.Conn).NetConn(), protocol.DeadAfter)
		running.Go(func() { f.accept(ctx, tls.Server(conn, cfg), control) })
	}
	server.Stop()
	f.closeLinks(nil)
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept agents: %w", ended)
}

func (f *Front) accept(ctx context.Context, conn *tls.Conn, control *protocol.Listener) {
	if err := conn.HandshakeContext(ctx); err != nil {
		f.stranger(conn, err)
		return
	}
	switch conn.ConnectionState().NegotiatedProtocol {
	case "h2":
		control.Give(conn)
	case protocol.LinkProtocol:
		f.join(ctx, conn)
	default:
		f.stranger(conn, errors.New("it speaks neither protocol of an agent"))
	}
}

// strangersEvery limits how often a stranger is logged: anybody may dial.
const strangersEvery = 10 * time.Second

func (f *Front) stranger(conn *tls.Conn, err error) {
	_ = conn.Close()
	f.metrics.refused.Inc()
	f.mu.Lock()
	level := f.strangerLevel()
	f.mu.Unlock()
	f.log.Log(context.Background(), level, "connection closed: it is not an agent", "from", conn.RemoteAddr().String(), "error", err)
}

func (f *Front) join(ctx context.Context, conn *tls.Conn) {
	var s *session
	err := protocol.AcceptLink(ctx, conn, func(h protocol.LinkHello) (*protocol.Pool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s = f.sessions[h.Agent]; s == nil || s.id != h.Session || subtle.ConstantTimeCompare([]byte(s.secret), []byte(h.Secret)) != 1 {
			return nil, errors.New("no session of an agent knows this link")
		}
		conn.NetConn().(*inbound.Conn).Begin()
		f.links[conn] = s
		s.links++
		f.metrics.links.WithLabelValues(s.hello.Cluster).Inc()
		return s.pool, nil
	})
	if err != nil {
		f.log.Warn("a link is refused", "from", conn.RemoteAddr().String(), "error", err)
		f.metrics.refused.Inc()
		return
	}
	s.linked.Ring()
}

func (f *Front) unlink(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.links[conn]
	delete(f.links, conn)
	s.links--
	f.metrics.links.WithLabelValues(s.hello.Cluster).Dec()
}

func (f *Front) closeLinks(s *session) {
	f.mu.Lock()
	var all []net.Conn
	for conn, of := range f.links {
		if s == nil || of == s {
			all = append(all, conn)
		}
	}
	f.mu.Unlock()
	for _, conn := range all {
		_ = conn.(*tls.Conn).NetConn().Close()
	}
}

// shaken are credentials for connections that have completed the handshake.
type shaken struct {
	credentials.TransportCredentials
}

type secured struct {
	credentials.TLSInfo
	conn *inbound.Conn
}

func (shaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil, errors.New("no TLS connection")
	}
	return c, secured{credentials.TLSInfo{State: t.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, t.NetConn().(*inbound.Conn)}, nil
}

func (shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (s shaken) Clone() credentials.TransportCredentials { return s }

// certificate returns the verified certificate of the stream's client; nil: none.
func (s secured) certificate() *x509.Certificate {
	if chains := s.State.VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

func connection(stream protocol.ServerStream) secured {
	p, _ := peer.FromContext(stream.Context())
	return p.AuthInfo.(secured)
}
