package door_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// rogue is a program that speaks the agents' protocol, and sends anything.
type rogue struct {
	stream  protocol.ClientStream
	welcome protocol.Welcome
}

// newRogue sends a Hello, and returns the front door's answer.
func newRogue(t *testing.T, f *front, cfg *tls.Config, token string, hello protocol.Hello) (*rogue, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+f.at, grpc.WithTransportCredentials(credentials.NewTLS(cfg)), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), time.Minute)
	t.Cleanup(cancel)
	r := &rogue{}
	if r.stream, err = protocol.Open(ctx, conn); err != nil {
		return nil, err
	}
	if err := r.stream.Send(&protocol.Up{Hello: &hello}); err != nil && err != io.EOF {
		return nil, err
	}
	down, err := r.stream.Recv()
	if err != nil {
		return nil, err
	}
	r.welcome = *down.Welcome
	return r, nil
}

// ended waits until the front door ends the stream, and returns why.
func (r *rogue) ended() error {
	for {
		if _, err := r.stream.Recv(); err != nil {
			return err
		}
	}
}

// serves dials connections for requests and serves on them.
func (r *rogue) serves(t *testing.T, f *front, pool *x509.CertPool, hello protocol.Hello, h http.HandlerFunc) {
	t.Helper()
	server := protocol.NewLinkServer(protocol.LinkHello{Agent: hello.Cluster + "/" + hello.Agent, Session: r.welcome.Session, Secret: r.welcome.Secret}, func(context.Context) (net.Conn, error) {
		return tls.Dial("tcp", f.at, &tls.Config{RootCAs: pool, NextProtos: []string{protocol.LinkProtocol}, MinVersion: tls.VersionTLS13})
	}, func() {}, h)
	first, err := server.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(ctx, first) }()
	t.Cleanup(func() { stop(); _ = server.Close(); <-served })
}

func hello(cluster, agent string) protocol.Hello {
	return protocol.Hello{Protocol: protocol.Protocol, Cluster: cluster, Agent: agent, Run: cluster + agent}
}

// badFront returns a front door with a well-behaved cluster, west, and a check that this cluster is undisturbed.
func badFront(t *testing.T, more ...string) (f *front, pool *x509.CertPool, undisturbed func()) {
	t.Helper()
	server, pool := authority(t)
	f = newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", append(more, "east/*")...))
	west := newCluster(t, "west", "w", pool, chat, f.at)
	f.known(t, chat.Name)
	west.set(api.Awake)
	return f, pool, func() {
		t.Helper()
		for range 3 {
			if code, body := f.ask(t, "chat"); code != http.StatusOK || body != `{"from":"west"}` {
				t.Errorf("another cluster is disturbed: %d %s", code, body)
			}
		}
	}
}

// TestBadHello: a refused agent learns why, which is logged, and others are undisturbed.
func TestBadHello(t *testing.T) {
	t.Parallel()
	later := hello("east", "a")
	later.Protocol++
	for name, tt := range map[string]struct {
		token string
		hello protocol.Hello
		code  codes.Code
		says  string
	}{
		"another token":             {"w", hello("east", "a"), codes.Unauthenticated, "its token or certificate is"},
		"no such cluster":           {"e", hello("north", "a"), codes.Unauthenticated, "not declared"},
		"a version from the future": {"e", later, codes.FailedPrecondition, fmt.Sprint("protocol ", later.Protocol)},
		"a name that is taken":      {"w", hello("west", "agent-1"), codes.AlreadyExists, "is taken"},
		"no name":                   {"e", hello("east", ""), codes.FailedPrecondition, "no name"},
		"a name with an escape":     {"e", hello("east", "a\x1b[31m"), codes.FailedPrecondition, "not ASCII"},
		"a name of two lines":       {"e", hello("east", "a\nb"), codes.FailedPrecondition, "not ASCII"},
		"an endless name":           {"e", hello("east", strings.Repeat("x", 300)), codes.FailedPrecondition, "253"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, pool, undisturbed := badFront(t)
			_, err := newRogue(t, f, &tls.Config{RootCAs: pool}, tt.token, tt.hello)
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.says) {
				t.Errorf("told %v, want %s, %q", err, tt.code, tt.says)
			}
			f.logged.has(t, "WARN", "an agent is refused", tt.says)
			undisturbed()
		})
	}
}

// TestBadWords: an agent that violates the protocol is shut out, and others continue.
func TestBadWords(t *testing.T) {
	t.Parallel()
	state := protocol.Function{Name: "east/x", Model: "x", State: api.Awake, Places: 1}
	with := func(change func(*protocol.Function)) *protocol.Up {
		s := state
		change(&s)
		return &protocol.Up{Functions: []protocol.Function{s}}
	}
	again := hello("east", "a")
	for name, tt := range map[string]struct {
		up   *protocol.Up
		says string
	}{
		"more than the limit": {&protocol.Up{Functions: []protocol.Function{{Name: "east/x", Model: "x", Failed: &protocol.Failure{Message: strings.Repeat("x", protocol.MaxMessage)}}}}, "larger than max"},
		"a second hello":      {&protocol.Up{Hello: &again}, "second Hello"},
		"places below 0":      {with(func(f *protocol.Function) { f.Places = -1 }), "below 0"},
		"places without end":  {with(func(f *protocol.Function) { f.Places = 1 << 62 }), "at most"},
		"never awake":         {with(func(f *protocol.Function) { f.Expected = 1 << 62 }), "at most"},
		"a negative way":      {&protocol.Up{Way: -time.Hour}, "0 or more"},
		"a nameless function": {with(func(f *protocol.Function) { f.Name = "" }), "no name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, pool, undisturbed := badFront(t)
			cfg := &tls.Config{RootCAs: pool}
			r, err := newRogue(t, f, cfg, "e", hello("east", "a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.stream.Send(tt.up); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			_ = r.ended()
			f.logged.has(t, "WARN", "an agent is shut out", "cluster=east", tt.says)
			if _, err := newRogue(t, f, cfg, "e", hello("east", "a")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("it comes again: %v", err)
			}
			if _, err := newRogue(t, f, cfg, "e", hello("east", "b")); err != nil {
				t.Errorf("another agent of its cluster is shut out, too: %v", err)
			}
			undisturbed()
		})
	}
}

// TestClaims: a cluster never gets a request for another's function or model name, whatever it sends.
func TestClaims(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]protocol.Function{
		"a function": {Name: "default/chat", Model: "chat"},
		"a model":    {Name: "east/x", Model: "chat"},
		"an alias":   {Name: "east/x", Model: "east/x", Aliases: []api.ModelName{"chat"}},
		"an adapter": {Name: "east/x", Model: "east/x", Adapters: []api.ModelName{"chat"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, pool, undisturbed := badFront(t)
			who := hello("east", "a")
			r, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", who)
			if err != nil {
				t.Fatal(err)
			}
			r.serves(t, f, pool, who, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "stolen") })
			for range 3 {
				state.State, state.Places = api.Awake, 1000
				if err := r.stream.Send(&protocol.Up{Functions: []protocol.Function{state}}); err != nil {
					t.Fatal(err)
				}
			}
			f.logged.has(t, "WARN", "a cluster offers what it may not serve", "cluster=east")
			undisturbed()
			if n := strings.Count(f.logged.all(), "a cluster offers what it may not serve"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		})
	}
}

// TestTakesNothing: an agent that grants slots and gives back every request is shut out; requests go to others.
func TestTakesNothing(t *testing.T) {
	t.Parallel()
	f, pool, undisturbed := badFront(t, "default/chat")
	who := hello("east", "a")
	r, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "e", who)
	if err != nil {
		t.Fatal(err)
	}
	r.serves(t, f, pool, who, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(control.HeaderRefused, api.CodeBusy)
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no"))
	})
	if err := r.stream.Send(&protocol.Up{Functions: []protocol.Function{{Name: chat.Name, Model: chat.Model, State: api.Awake, Places: 1000}}}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for beat := uint64(1); r.stream.Send(&protocol.Up{Beat: beat}) == nil; beat++ {
			time.Sleep(protocol.BeatEvery) // it stays alive
		}
	}()
	for ended := false; !ended; {
		undisturbed()
		select {
		case <-stop:
			ended = true
		default:
		}
	}
	f.logged.has(t, "WARN", "an agent is shut out", "gives back every request")
	undisturbed()
}

// TestExpired: a certificate that has expired is refused, and the log says so.
func TestExpired(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	clients, sign := clientAuthority(t)
	server.ClientCAs = clients
	f := newFront(t, server, declaredBy("east", "east"))
	for name, tt := range map[string]struct {
		until time.Time
		says  string
	}{
		"valid":   {until: time.Now().Add(time.Hour)},
		"expired": {until: time.Now().Add(-time.Hour), says: "expired"},
	} {
		_, err := newRogue(t, f, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{sign("east", tt.until)}}, "", hello("east", name))
		if (err == nil) != (tt.says == "") {
			t.Errorf("%s: %v", name, err)
		}
		if tt.says != "" {
			f.logged.has(t, "WARN", "not an agent", tt.says)
		}
	}
}

// TestGarbage: a connection without TLS is closed, and some of these are logged.
func TestGarbage(t *testing.T) {
	t.Parallel()
	f, _, undisturbed := badFront(t)
	for range 50 {
		conn, err := net.Dial("tcp", f.at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	f.logged.has(t, "WARN", "connection closed: it is not an agent")
	if n := strings.Count(f.logged.all(), "level=WARN msg=\"connection closed: it is not an agent\""); n != 1 {
		t.Errorf("logged %d times", n)
	}
	undisturbed()
}

// clientAuthority signs certificates of agents.
func clientAuthority(t *testing.T) (pool *x509.CertPool, sign func(name string, until time.Time) tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(ca)
	return pool, func(name string, until time.Time) tls.Certificate {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
	}
}

// TestSentAwayAgain: a refused agent that keeps coming back is logged once, and listed with its last attempt.
func TestSentAwayAgain(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("east", "e", "default/*"))
	var first time.Time
	for k := range 5 {
		if _, err := newRogue(t, f, &tls.Config{RootCAs: pool}, "another", hello("east", "a")); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("told %v", err)
		}
		at := f.List()[0].RejectedAt
		if k == 0 {
			first = at
		} else if !at.After(first) {
			t.Errorf("it was sent away at %v, and the list says %v", at, first)
		}
	}
	n := 0
	for line := range strings.Lines(f.logged.all()) {
		if strings.Contains(line, "an agent is refused") && strings.Contains(line, "WARN") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}
