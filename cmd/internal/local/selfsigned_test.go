package local

import (
	"path/filepath"
	"testing"

	"github.com/rouse-dev/rouse/internal/peertls"
)

// TestSelfSignedForSeveral: the certificate of two servers of a user has the names of both, each once.
func TestSelfSignedForSeveral(t *testing.T) {
	dir := t.TempDir()
	f := &peertls.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	for _, names := range [][]string{{"a.example", "192.0.2.1"}, {"b.example", "192.0.2.1"}, {"192.0.2.2", "a.example"}, {"b.example"}} {
		if err := keepSelfSigned(f, names); err != nil {
			t.Fatal(err)
		}
	}
	c, err := f.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.example", "b.example", "192.0.2.1", "192.0.2.2"} {
		if err := c.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if n := len(c.Leaf.DNSNames) + len(c.Leaf.IPAddresses); n != 4 {
		t.Errorf("it has %d names: %v %v", n, c.Leaf.DNSNames, c.Leaf.IPAddresses)
	}
}
