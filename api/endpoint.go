package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Endpoint is an address that a part listens on: "http://host:port" or "unix:/path/to/socket".
type Endpoint string

// CheckEndpoint returns an error that says why e is not a valid endpoint, or nil.
func CheckEndpoint(e Endpoint) error {
	if path, found := strings.CutPrefix(string(e), "unix:"); found {
		if path == "" {
			return fmt.Errorf("endpoint %q: want unix: and a path", e)
		}
		// Linux allows 108 bytes for the path, including the terminating zero.
		if len(path) > 107 {
			return fmt.Errorf("endpoint %q: the path has %d bytes, a Unix socket's may have 107", e, len(path))
		}
		return nil
	}
	u, err := url.Parse(string(e))
	if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("endpoint %q: want http://host:port or unix:/path", e)
	}
	return nil
}

// ParseEndpoint parses an [Endpoint], or host:port as short for http://host:port.
func ParseEndpoint(s string) (Endpoint, error) {
	e := Endpoint(strings.TrimSuffix(s, "/"))
	if _, unix := e.Socket(); !unix && !strings.Contains(s, "://") {
		if _, _, err := net.SplitHostPort(string(e)); err != nil {
			return "", fmt.Errorf("address %q: want host:port, http://host:port or unix:/path", s)
		}
		e = "http://" + e
	}
	return e, CheckEndpoint(e)
}

// ParseListen is [ParseEndpoint] for a listening address. The port must be a number; 0 lets the system choose.
// Without a host, as in ":8080", it means all addresses of the machine.
func ParseListen(s string) (Endpoint, error) {
	e, err := ParseEndpoint(s)
	if err != nil {
		return "", err
	}
	if _, unix := e.Socket(); unix {
		return e, nil
	}
	_, address := e.Network()
	_, port, _ := net.SplitHostPort(address) // "" is no port either
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("address %q: want a port from 0 to 65535 at its end, such as 127.0.0.1:8080", s)
	}
	return e, nil
}

// ListenAddress is [ParseListen] for servers that do not listen on Unix sockets. It returns "host:port".
func ListenAddress(s string) (string, error) {
	e, err := ParseListen(s)
	if err != nil {
		return "", err
	}
	if _, unix := e.Socket(); unix {
		return "", fmt.Errorf("address %q: this part listens at no Unix socket: want host:port, such as 127.0.0.1:8080", s)
	}
	_, address := e.Network()
	return address, nil
}

// Socket returns the path of a Unix socket and reports whether e is one.
func (e Endpoint) Socket() (string, bool) { return strings.CutPrefix(string(e), "unix:") }

// Network returns the arguments for [net.Dial] and [net.Listen].
func (e Endpoint) Network() (network, address string) {
	if path, found := e.Socket(); found {
		return "unix", path
	}
	_, address, _ = strings.Cut(string(e), "://")
	return "tcp", strings.TrimSuffix(address, "/")
}

// URL returns the URL of path at e. For a Unix socket the host is a placeholder that encodes the socket's path. A
// [http.Transport] made by [NewTransport] decodes it and pools connections by it.
func (e Endpoint) URL(path string) string {
	if socket, found := e.Socket(); found {
		return "http://" + encodeSocket(socket) + path
	}
	return strings.TrimSuffix(string(e), "/") + path
}

// socketHost is the domain of placeholder hosts.
const socketHost = ".socket"

func encodeSocket(path string) string { return fmt.Sprintf("%x%s", path, socketHost) }

func decodeSocket(host string) (string, bool) {
	enc, found := strings.CutSuffix(host, socketHost)
	var path []byte
	_, err := fmt.Sscanf(enc, "%x", &path)
	return string(path), found && err == nil
}

// Unreached returns the cause of an error of [http.Client], without the URL: for a Unix socket the URL has an
// unreadable placeholder host.
func Unreached(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// MaxAnswerHeader is the largest response header that any part reads, interim responses included.
const MaxAnswerHeader = 256 * KiB

// NewTransport returns a transport that reaches every [Endpoint] through [Endpoint.URL]. It uses no proxy, adds no
// compression and keeps up to idlePerHost idle connections to each endpoint.
func NewTransport(idlePerHost int) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr) // "" is no socket
			if path, found := decodeSocket(host); found {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, network, addr)
		},
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,

		MaxResponseHeaderBytes: int64(MaxAnswerHeader),
	}
}
