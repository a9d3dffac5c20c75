package clusteragent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// dialTimeout bounds one try to reach a front door. It is short: another follows at once, and a packet that is
// lost at the beginning is sent again by TCP only after a second.
const dialTimeout = 2 * time.Second

// dialer dials as the environment says: through HTTPS_PROXY, but for NO_PROXY.
type dialer struct{}

func (dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, fmt.Errorf("the proxy for %s: %w", address, err)
	}
	tcp := net.Dialer{KeepAlive: 15 * time.Second}
	if proxy == nil {
		return tcp.DialContext(ctx, "tcp", address) //nolint:wrapcheck // it names the address
	}
	at := proxy.Host
	if proxy.Port() == "" {
		at = net.JoinHostPort(proxy.Hostname(), map[string]string{"https": "443"}[proxy.Scheme])
		if proxy.Scheme != "https" {
			at = net.JoinHostPort(proxy.Hostname(), "80")
		}
	}
	conn, err := tcp.DialContext(ctx, "tcp", at)
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

// connect asks a proxy for a tunnel to address.
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

// tunnel is a connection of which something was read already.
type tunnel struct {
	net.Conn
	in *bufio.Reader
}

// Read implements [net.Conn].
func (t *tunnel) Read(p []byte) (int, error) {
	return t.in.Read(p) //nolint:wrapcheck // a connection's errors are its own
}
