package peertls

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFilesWarn lets a certificate expire: that is logged once a day, and for each certificate that is read.
func TestFilesWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log bytes.Buffer
		f := &Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Log: slog.New(slog.NewTextHandler(&log, nil))}
		renew := func() {
			cert, key, err := SelfSigned("a.example")
			if err := errors.Join(err, os.WriteFile(f.Cert, cert, 0o600), os.WriteFile(f.Key, key, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		read := func(want string) {
			t.Helper()
			for range 2 {
				if _, err := f.Get(nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := log.String(); strings.Count(got, "\n") != min(len(want), 1) || !strings.Contains(got, want) {
				t.Errorf("at %s: got %q, want one line with %q", time.Now(), got, want)
			}
			log.Reset()
		}
		renew()
		const day = 24 * time.Hour
		read("")
		time.Sleep(validity - 15*day)
		read("")
		time.Sleep(2 * day)
		read("certificate expires soon")
		time.Sleep(day)
		read("certificate expires soon")
		time.Sleep(12 * day)
		read("certificate expired")
		renew()
		read("")
	})
}

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
