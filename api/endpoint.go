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

// Endpoint is where a part listens: "http://host:port" or "unix:/path/to/socket".
type Endpoint string

// CheckEndpoint reports why e is no endpoint, nil if it is one.
func CheckEndpoint(e Endpoint) error {
	if path, found := strings.CutPrefix(string(e), "unix:"); found {
		if path == "" {
			return fmt.Errorf("endpoint %q: want unix: and a path", e)
		}
		// Linux keeps 108 bytes for the path, the closing zero included.
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

// ParseEndpoint reads an address of a part as people write it: an [Endpoint], or host:port, which is short for
// http://host:port.
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

// ParseListen is [ParseEndpoint] of an address to listen at. Its port is a number: 0 lets the system choose. Without a
// host, as in ":8080", it is all addresses of the machine.
func ParseListen(s string) (Endpoint, error) {
	e, err := ParseEndpoint(s)
	if err != nil {
		return "", err
	}
	if _, unix := e.Socket(); unix {
		return e, nil
	}
	_, address := e.Network()
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("address %q: want a port from 0 to 65535 at its end, such as 127.0.0.1:8080", s)
	}
	return e, nil
}

// ListenAddress is [ParseListen] for who does not listen at Unix sockets. It returns the host and port.
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

// Socket returns the path of a Unix socket, and whether e is one.
func (e Endpoint) Socket() (string, bool) { return strings.CutPrefix(string(e), "unix:") }

// Network returns what [net.Dial] and [net.Listen] want.
func (e Endpoint) Network() (network, address string) {
	if path, found := e.Socket(); found {
		return "unix", path
	}
	return "tcp", strings.TrimSuffix(strings.TrimPrefix(string(e), "http://"), "/")
}

// URL returns the URL of path at e. For a Unix socket the host is a stand-in
// that carries the socket's path, so that a [http.Transport] made by
// [NewTransport] finds it and pools connections by it.
func (e Endpoint) URL(path string) string {
	if socket, found := e.Socket(); found {
		return "http://" + encodeSocket(socket) + path
	}
	return strings.TrimSuffix(string(e), "/") + path
}

// socketHost is the domain of stand-in hosts.
const socketHost = ".socket"

func encodeSocket(path string) string { return fmt.Sprintf("%x%s", path, socketHost) }

func decodeSocket(host string) (string, bool) {
	enc, found := strings.CutSuffix(host, socketHost)
	if !found {
		return "", false
	}
	var path []byte
	if _, err := fmt.Sscanf(enc, "%x", &path); err != nil {
		return "", false
	}
	return string(path), true
}

// Unreached is what an [http.Client] says of a call that got no answer, without the URL that it
// names: of a Unix socket that is a stand-in, which nobody can read.
func Unreached(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// MaxAnswerHeader bounds the header of an answer, interim answers included, that any part reads.
const MaxAnswerHeader = 256 * KiB

// NewTransport returns a transport that reaches every [Endpoint] through
// [Endpoint.URL]. It uses no proxy, never compresses on its own account and
// keeps up to idlePerHost idle connections to each endpoint.
func NewTransport(idlePerHost int) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(addr)
			if err == nil {
				if path, found := decodeSocket(host); found {
					return dialer.DialContext(ctx, "unix", path)
				}
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
