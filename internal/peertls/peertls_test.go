package peertls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// secret returns a Secret with an authority of its own and a certificate for the names.
func secret(t *testing.T, names ...string) map[string][]byte {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(of, by *x509.Certificate, public any, with *ecdsa.PrivateKey) []byte {
		raw, err := x509.CreateCertificate(rand.Reader, of, by, public, with)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	ca, own := key(), key()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rawCA := sign(authority, authority, &ca.PublicKey, ca)
	leaf := sign(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, &own.PublicKey, ca)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, raw []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	}
	return map[string][]byte{"tls.crt": encode("CERTIFICATE", leaf), "tls.key": encode("PRIVATE KEY", private), "ca.crt": encode("CERTIFICATE", rawCA)}
}

// serve runs a server and records the first bytes of its connections.
func serve(t *testing.T, i *Identity) (url string, wire *tap) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire = &tap{Listener: l, first: make(chan byte, 16)}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte("heard "), body...))
	}), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(i.Listen(wire)) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return "http://" + l.Addr().String(), wire
}

// tap reports the first byte of each connection.
type tap struct {
	net.Listener
	first chan byte // sent to by connections, once each; never closed; larger than the number of connections
}

func (l *tap) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: c, tell: l.first}, nil
}

type tapped struct {
	net.Conn
	tell chan byte
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.tell != nil {
		c.tell <- p[0]
		c.tell = nil
	}
	return n, err
}

func post(i *Identity, url string) (string, error) {
	transport := i.Transport(&http.Transport{DisableKeepAlives: true})
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("a token"))
	if err != nil {
		return "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestOnePortForBoth checks that one port serves TLS if enabled, and plain text otherwise.
func TestOnePortForBoth(t *testing.T) {
	server, client := &Identity{}, &Identity{}
	url, wire := serve(t, server)
	s := secret(t, Name)
	for _, use := range []bool{false, true, false} {
		if use {
			for _, i := range []*Identity{server, client} {
				if err := i.Set(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		client.Use(use)
		if got, err := post(client, url); err != nil || got != "heard a token" {
			t.Fatalf("use %t: got %q, %v", use, got, err)
		}
		if first := <-wire.first; (first == recordHandshake) != use {
			t.Errorf("use %t: the connection began with %#x", use, first)
		}
	}
}

// TestWhoIsNotAPeer checks that a client with TLS enabled connects to peers only, and never without TLS.
func TestWhoIsNotAPeer(t *testing.T) {
	ours := secret(t, Name)
	for what, i := range map[string]map[string][]byte{"another authority": secret(t, Name), "another name": secret(t, "kn-user-default"), "no certificate": nil} {
		server, client := &Identity{}, &Identity{}
		if i != nil {
			if err := server.Set(i); err != nil {
				t.Fatal(err)
			}
		}
		trust := ours
		if what == "another name" {
			trust = i
		}
		if err := client.Set(trust); err != nil {
			t.Fatal(err)
		}
		client.Use(true)
		url, wire := serve(t, server)
		if got, err := post(client, url); err == nil {
			t.Errorf("%s: it answers %q", what, got)
		}
		if first := <-wire.first; first != recordHandshake {
			t.Errorf("%s: the connection began with %#x", what, first)
		}
	}
	client := &Identity{}
	client.Use(true)
	url, _ := serve(t, &Identity{})
	if got, err := post(client, url); err == nil {
		t.Errorf("without a certificate it says a token to %q", got)
	}
}

// TestSecretsThatAreNone checks that an invalid Secret leaves the previous state.
func TestSecretsThatAreNone(t *testing.T) {
	i := &Identity{}
	good := secret(t, Name)
	if err := i.Set(good); err != nil {
		t.Fatal(err)
	}
	had := i.certificate.Load()
	for _, bad := range []map[string][]byte{nil, {"tls.crt": good["tls.crt"]}, {"tls.crt": good["tls.crt"], "tls.key": good["tls.key"]}} {
		if err := i.Set(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if i.certificate.Load() != had {
		t.Error("what was there is gone")
	}
	if err := i.Set(map[string][]byte{"tls.crt": good["tls.crt"], "tls.key": good["tls.key"]}, string(good["ca.crt"])); err != nil {
		t.Errorf("with a trust bundle: %v", err)
	}
}
