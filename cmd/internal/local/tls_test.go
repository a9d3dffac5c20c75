package local_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// trusting returns a client that trusts the certificate in a file, and speaks a version of HTTP.
func trusting(t *testing.T, file string, http2 bool) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: new(http.Protocols), DisableKeepAlives: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	return &http.Client{Transport: transport}
}

// TestSelfSigned starts a server with a certificate of its own, which the next server keeps.
func TestSelfSigned(t *testing.T) {
	state := t.TempDir()
	config := func(c *local.Config) { c.TLS.SelfSigned, c.StateDir = true, state }
	s := start(t, config)
	for _, http2 := range []bool{false, true} {
		s.http = trusting(t, s.info.Certificate, http2)
		resp, err := s.http.Post(s.info.URL+"/v1/chat/completions", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if http2 != (resp.ProtoMajor == 2) || resp.StatusCode != http.StatusOK || !strings.HasPrefix(s.info.URL, "https://") {
			t.Errorf("%s: got %s %s %s", s.info.URL, resp.Proto, resp.Status, body)
		}
		if got := peertls.Fingerprint(resp.TLS.PeerCertificates[0].Raw); got != s.info.Fingerprint {
			t.Errorf("the fingerprint is %s, and was told as %s", got, s.info.Fingerprint)
		}
		for _, name := range []string{"localhost", "127.0.0.1"} {
			if err := resp.TLS.PeerCertificates[0].VerifyHostname(name); err != nil {
				t.Error(err)
			}
		}
	}
	if i, err := os.Stat(filepath.Join(state, "tls", "key.pem")); err != nil || i.Mode() != 0o600 {
		t.Errorf("the key: %v (%v), want the mode 0600", i, err)
	}
	s.http = &http.Client{}
	body := strings.Repeat("x", 300_000) // more than the buffers of a connection
	if status, got := s.send(http.MethodPost, api.Endpoint("http"+strings.TrimPrefix(s.info.URL, "https")), "/v1/chat/completions", body); status != http.StatusBadRequest || !strings.Contains(got, "use https://") {
		t.Errorf("without TLS: got %d %s, want a 400 that says what to use", status, got)
	}
	if again := start(t, config); again.info.Fingerprint != s.info.Fingerprint {
		t.Error("the next server has another certificate")
	}
}

// TestCertificateFiles replaces a server's certificate while it runs, by files that can't be used and by others.
func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(c, k []byte) {
		t.Helper()
		for file, text := range map[string][]byte{cert: c, key: k} {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	made := func() (c, k []byte) {
		t.Helper()
		c, k, err := peertls.SelfSigned("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		return c, k
	}
	write(made())
	s := start(t, func(c *local.Config) { c.TLS = local.TLS{Cert: cert, Key: key} })
	first := filepath.Join(dir, "first.pem")
	if err := os.Link(cert, first); err != nil {
		t.Fatal(err)
	}
	healthy := func(trusted string) error {
		resp, err := trusting(t, trusted, false).Get(s.info.URL + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	write([]byte("none"), []byte("none"))
	if err := healthy(first); err != nil {
		t.Errorf("with files that can't be used: %v, want the certificate from before", err)
	}
	write(made())
	if err := healthy(cert); err != nil {
		t.Errorf("with a new certificate: %v", err)
	}
	resp, err := trusting(t, cert, false).Get(s.info.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "\nrouse_activator_certificate_end_timestamp_seconds 1.") {
		t.Error("no metric says when the certificate ends")
	}
	if err := healthy(first); err == nil {
		t.Error("the old certificate is still used")
	}
}

// TestCertificateErrors checks what is said of flags that can't be used together.
func TestCertificateErrors(t *testing.T) {
	for want, tls := range map[string]local.TLS{
		"give both":            {Cert: "a"},
		"leave out --tls-cert": {Cert: "a", Key: "b", SelfSigned: true},
		"set $HOME":            {SelfSigned: true},
		"no such file":         {Cert: "/no/such", Key: "/no/such"},
	} {
		err := local.Run(t.Context(), local.Config{Listen: "127.0.0.1:0", Functions: []api.Function{{Name: "default/a"}}, TLS: tls})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", tls, err, want)
		}
	}
}
