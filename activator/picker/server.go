package picker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// Config is a picker's configuration.
type Config struct {
	// Without a host on the loopback interface.
	Address string `flag:"picker-address" help:"<host:port> at which it is the endpoint picker of an InferencePool; without a host on the loopback interface (default: it is none)"`
	// Front is where all requests go; empty: to instances.
	Front string `flag:"picker-front" help:"<ip:port> that the endpoint picker sends all requests to, the activators' own (default: to instances)"`
	// PEM files, read for each connection; empty: self-signed.
	Cert string `flag:"picker-cert" help:"<file> with the endpoint picker's certificate (default: one of its own, which nobody has signed)"`
	Key  string `flag:"picker-key" help:"<file> with the key of --picker-cert"`
	// Plain disables TLS.
	Plain bool `flag:"picker-plaintext" help:"the endpoint picker speaks gRPC without TLS"`
}

// Validate returns an error for the first invalid field.
func (c Config) Validate() error {
	if _, port, err := net.SplitHostPort(c.Address); err != nil || port == "" {
		return fmt.Errorf("the picker's address is %q: want host:port, such as 0.0.0.0:9002", c.Address)
	}
	if c.Front != "" {
		if _, err := netip.ParseAddrPort(c.Front); err != nil {
			return fmt.Errorf("the picker's front is %q: want ip:port of the activators, such as 10.0.0.7:8012", c.Front)
		}
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("the picker has a certificate or a key: want both, or neither")
	case c.Plain && c.Cert != "":
		return errors.New("the picker has a certificate, and is to speak without TLS: want one of them")
	}
	if c.Cert != "" {
		if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
			return fmt.Errorf("read the picker's certificate: %w", err)
		}
	}
	return nil
}

// Deps are a picker's dependencies.
type Deps struct {
	Handler http.Handler
	// Ready returns why no requests are accepted now.
	Ready func() error
	// Logger may be nil.
	Logger *slog.Logger
}

// Server is an endpoint picker.
type Server struct {
	extproc.UnimplementedExternalProcessorServer

	cfg     Config
	deps    Deps
	streams sync.WaitGroup
}

// New returns a picker. It starts no goroutine.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Ready == nil {
		deps.Ready = func() error { return nil }
	}
	return &Server{cfg: cfg, deps: deps}, nil
}

// Listen listens at the configured address.
func (s *Server) Listen() (net.Listener, error) {
	address := s.cfg.Address
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for gateways: %w", err)
	}
	return l, nil
}

const maxHeader = 256 << 10

// Run serves gateways until ctx ends, and running requests until hard ends. It closes l.
func (s *Server) Run(ctx, hard context.Context, l net.Listener) error {
	options := []grpc.ServerOption{
		grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 2 * time.Minute, Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	creds := insecure.NewCredentials()
	if !s.cfg.Plain {
		cfg, err := s.tls()
		if err != nil {
			_ = l.Close()
			return err
		}
		creds = credentials.NewTLS(cfg)
	}
	server := grpc.NewServer(append(options, grpc.Creds(counted{creds}))...)
	extproc.RegisterExternalProcessorServer(server, s)
	grpc_health_v1.RegisterHealthServer(server, &health{ready: s.deps.Ready})
	var ending sync.WaitGroup
	over := make(chan struct{})
	ending.Go(func() {
		stop := context.AfterFunc(hard, server.Stop)
		defer stop()
		select {
		case <-ctx.Done():
			server.GracefulStop()
		case <-over:
		}
	})
	err := server.Serve(inbound.NewListener(l, inbound.Limits{}, s.deps.Logger))
	close(over)
	ending.Wait()
	server.Stop()
	s.streams.Wait()
	if err != nil && ctx.Err() == nil && hard.Err() == nil {
		return fmt.Errorf("serve gateways: %w", err)
	}
	return nil
}

// counted lets each stream find its connection ([inbound.Limits]). A cancelled stream is not counted: gateways end
// streams so.
type counted struct {
	credentials.TransportCredentials
}

type connection struct {
	credentials.AuthInfo
	*inbound.Conn
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return conn, connection{info, raw.(*inbound.Conn)}, err
}

func (s *Server) tls() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if s.cfg.Cert != "" {
		cfg.GetCertificate = (&peertls.Files{Cert: s.cfg.Cert, Key: s.cfg.Key, Log: s.deps.Logger}).Get
		return cfg, nil
	}
	// Gateways don't verify it: it only prevents passive eavesdropping.
	cert, key, err := peertls.SelfSigned()
	if err != nil {
		return nil, fmt.Errorf("the picker's certificate: %w", err)
	}
	own, err := tls.X509KeyPair(cert, key)
	cfg.Certificates = []tls.Certificate{own}
	return cfg, err
}

type health struct {
	grpc_health_v1.UnimplementedHealthServer
	ready func() error
}

// Check implements grpc.health.v1.
func (h *health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	state := grpc_health_v1.HealthCheckResponse_SERVING
	switch r.GetService() {
	case "liveness":
	case "", "readiness", extproc.ExternalProcessor_ServiceDesc.ServiceName:
		if h.ready() != nil {
			state = grpc_health_v1.HealthCheckResponse_NOT_SERVING
		}
	default:
		return nil, status.Errorf(codes.NotFound, "there is no service %.100q", r.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: state}, nil
}
