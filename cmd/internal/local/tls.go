package local

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// TLS is the front door's certificate. The zero value: it speaks no TLS.
type TLS struct {
	// Cert and Key are PEM files, read at each handshake.
	Cert string `flag:"tls-cert" help:"<file> of a certificate in PEM, with its chain: the address of --listen speaks TLS; read again on change"`
	Key  string `flag:"tls-key" help:"<file> of its key"`
	// SelfSigned makes both, and keeps them in [Config.StateDir].
	SelfSigned bool `flag:"tls-self-signed" help:"speak TLS with a certificate that is made here, kept, and printed with its fingerprint"`
}

// files returns nil without TLS.
func (c Config) files(at *net.TCPAddr) (*peertls.Files, error) {
	f := &peertls.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, Log: c.Logger}
	switch t := c.TLS; {
	case t == TLS{}:
		return nil, nil // no TLS is no error
	case t.SelfSigned && t.Cert+t.Key != "":
		return nil, errors.New("--tls-self-signed makes its own certificate: leave out --tls-cert and --tls-key")
	case t.SelfSigned && c.StateDir == "":
		return nil, errors.New("--tls-self-signed: there is no folder to keep the certificate in: set $HOME or $XDG_STATE_HOME")
	case t.SelfSigned:
		dir := filepath.Join(c.StateDir, "tls")
		f.Cert, f.Key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if err := keepSelfSigned(f, c.namesAt(at)); err != nil {
			return nil, fmt.Errorf("--tls-self-signed: %w", err)
		}
	case t.Cert == "" || t.Key == "":
		return nil, errors.New("--tls-cert and --tls-key: give both, or --tls-self-signed")
	}
	if _, err := f.Get(nil); err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return f, nil
}

// CertificateEnd is the metric of the certificate in f.
func CertificateEnd(f *peertls.Files) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "rouse", Subsystem: "activator", Name: "certificate_end_timestamp_seconds",
		Help: "When the certificate of the front door expires, in seconds since 1970; only where it speaks TLS.",
	}, func() float64 {
		c, err := f.Get(nil)
		if err != nil { // it has one since the start
			return 0
		}
		return float64(c.Leaf.NotAfter.Unix())
	})
}

// namesAt has an IPv6 address only if --listen has it: those of interfaces change.
func (c Config) namesAt(at *net.TCPAddr) []string {
	names := []string{at.IP.String()}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		names = append(names, host)
	}
	if at.IP.IsLoopback() || at.IP.IsUnspecified() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	if at.IP.IsUnspecified() {
		all, _ := net.InterfaceAddrs() // without them the names remain
		for _, a := range all {
			if n, is := a.(*net.IPNet); is && n.IP.To4() != nil {
				names = append(names, n.IP.String())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// renewBefore is how long before its end a kept certificate is replaced.
const renewBefore = 30 * 24 * time.Hour

// keepSelfSigned keeps a certificate with all names that is valid for long enough. A new one has the kept one's names too: another server
// of this user may serve it.
func keepSelfSigned(f *peertls.Files, names []string) error {
	if kept, err := tls.LoadX509KeyPair(f.Cert, f.Key); err == nil {
		lacks := slices.ContainsFunc(names, func(name string) bool { return kept.Leaf.VerifyHostname(name) != nil })
		if !lacks && time.Until(kept.Leaf.NotAfter) > renewBefore {
			return nil
		}
		names = append(names, kept.Leaf.DNSNames...)
		for _, ip := range kept.Leaf.IPAddresses {
			names = append(names, ip.String())
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	cert, key, err := peertls.SelfSigned(names...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.Key), 0o700); err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	if err := errors.Join(disk.WriteFile(f.Key, key, 0o600), disk.WriteFile(f.Cert, cert, 0o600)); err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	return nil
}

type helloListener struct{ net.Listener }

func (l helloListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &helloConn{Conn: c}, nil
}

// helloConn's first byte shows whether it is TLS.
type helloConn struct {
	net.Conn
	begun bool
}

func (c *helloConn) NetConn() net.Conn { return c.Conn }

// Bounds of what is read from a plain client, so that it reads the answer rather than a reset.
const (
	mostPlain = 1 << 20
	plainTime = time.Second
)

// Read answers, at the first call, a client that does not speak TLS.
func (c *helloConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	const handshake = 0x16 // TLS begins with it, and no HTTP request does
	if c.begun || n == 0 || p[0] == handshake {
		c.begun = c.begun || n > 0
		return n, err
	}
	body := api.Errorf(400, "", "this port speaks TLS: use https:// in place of http://").Body(api.ShapeOpenAI)
	_ = c.Conn.SetDeadline(time.Now().Add(plainTime))
	_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.Conn, mostPlain)
	return 0, errors.New("the client does not speak TLS")
}

func (s *server) describe() Info {
	info := s.info
	if s.tls == nil {
		return info
	}
	if c, err := s.tls.Get(nil); err == nil { // it has one since the start
		info.Certificate, info.Fingerprint = s.tls.Cert, peertls.Fingerprint(c.Certificate[0])
	}
	return info
}
