package agent

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
)

// TCP resends a lost first packet only after one second, and then after two, so another attempt begins every tryEvery.
const (
	dialTimeout = 2 * time.Second
	tryEvery    = 300 * time.Millisecond
)

// eagerly runs attempts in parallel until one succeeds, all begun ones have failed, or dialTimeout has passed.
func eagerly(ctx context.Context, try func(context.Context) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	ends := make(chan result)
	running := 0
	begin := func() {
		running++
		go func() {
			conn, err := try(ctx)
			ends <- result{conn, err}
		}()
	}
	begin()
	more := time.NewTicker(tryEvery)
	defer more.Stop()
	var end result
	for end.conn == nil && running > 0 {
		select {
		case end = <-ends:
			running--
		case <-more.C:
			begin()
		}
	}
	cancel()
	for ; running > 0; running-- {
		if late := <-ends; late.conn != nil {
			_ = late.conn.Close()
		}
	}
	return end.conn, end.err
}

// dial connects through HTTPS_PROXY, except for NO_PROXY.
func dial(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, fmt.Errorf("the proxy for %s: %w", address, err)
	}
	if proxy == nil {
		return dialTCP(ctx, address)
	}
	port := "80"
	if proxy.Scheme == "https" {
		port = "443"
	}
	conn, err := dialTCP(ctx, net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), port)))
	if err != nil {
		return nil, fmt.Errorf("the proxy: %w", err)
	}
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	through, err := connect(conn, address, proxy.User)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return through, nil
}

// dialTCP dials a connection that ends when its peer stops answering.
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		protocol.Probe(conn, protocol.DeadAfter)
	}
	return conn, err
}

func connect(conn net.Conn, address string, user *url.Userinfo) (net.Conn, error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("ask the proxy for %s: %w", address, err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, fmt.Errorf("the proxy's answer: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy refuses a tunnel to %s: %s", address, resp.Status)
	}
	return &tunnel{conn, in}, nil
}

// tunnel is a connection with a buffer of what was already read.
type tunnel struct {
	net.Conn
	in *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) {
	return t.in.Read(p)
}

func (f *front) secure(ctx context.Context, protocol string) (net.Conn, error) {
	return eagerly(ctx, func(ctx context.Context) (net.Conn, error) { return f.try(ctx, protocol) })
}

const otherPort = ": give the address that the front door names for clusters (listen in its clusters.yaml)"

func advice(err error) string {
	var stranger x509.UnknownAuthorityError
	var name x509.HostnameError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &stranger):
		return ": give the certificate that signed it (--front-ca)"
	case errors.As(err, &name):
		return ": dial it by a name or an address of its certificate, or give it a certificate for this one"
	case errors.As(err, &noTLS):
		return otherPort
	}
	return ""
}

func (f *front) try(ctx context.Context, protocol string) (net.Conn, error) {
	raw, err := dial(ctx, f.at)
	if err != nil {
		return nil, fmt.Errorf("dial the front door: %w", err)
	}
	cfg := f.a.cfg.TLS.Clone()
	cfg.MinVersion, cfg.NextProtos, cfg.DynamicRecordSizingDisabled = tls.VersionTLS13, []string{protocol}, true // an answer is one record
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(f.at)
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("the front door's TLS: %w%s", err, advice(err))
	}
	if conn.ConnectionState().NegotiatedProtocol != protocol {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is no front door's port for clusters: it does not speak %s%s", f.at, protocol, otherPort)
	}
	return conn, nil
}
