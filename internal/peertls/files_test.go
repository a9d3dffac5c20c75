package peertls

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFiles replaces the files of a certificate: by ones that can't be used, which is logged once, and by another pair.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	f := &Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Log: slog.New(slog.NewTextHandler(&log, nil))}
	if c, err := f.Get(nil); err == nil {
		t.Errorf("without files: got %v", c)
	}
	write := func(cert, key []byte) {
		t.Helper()
		for path, text := range map[string][]byte{f.Cert: cert, f.Key: key} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	fingerprint := func() string {
		t.Helper()
		c, err := f.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return Fingerprint(c.Certificate[0])
	}
	made := func() (cert, key []byte) {
		t.Helper()
		cert, key, err := SelfSigned("a.example", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	write(made())
	first := fingerprint()
	other, key := made()
	if err := os.WriteFile(f.Cert, other, 0o600); err != nil { // the key is still the first one's
		t.Fatal(err)
	}
	for range 3 {
		if got := fingerprint(); got != first {
			t.Errorf("with a certificate and another's key: got %s, want %s", got, first)
		}
	}
	if n := strings.Count(log.String(), "certificate not reloaded"); n != 1 {
		t.Errorf("%d lines of the log say so, want 1:\n%s", n, log.String())
	}
	write(other, key)
	if got := fingerprint(); got == first {
		t.Error("the new pair is not used")
	}
	c, err := f.Get(nil)
	if err != nil || c.Leaf.VerifyHostname("a.example") != nil || c.Leaf.VerifyHostname("192.0.2.1") != nil || c.Leaf.IsCA {
		t.Errorf("the certificate has the names %v %v, and is an authority: %v (%v)", c.Leaf.DNSNames, c.Leaf.IPAddresses, c.Leaf.IsCA, err)
	}
}
