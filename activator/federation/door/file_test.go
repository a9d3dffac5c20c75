package door

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// folder returns paths to a certificate front.pem with its key front.key, a token, and a file that is neither.
func folder(t *testing.T) (path func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	path = func(name string) string { return filepath.Join(dir, name) }
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"front.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"front.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"token":     []byte("secret\n"), "text": []byte("hello\n"),
	} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestTokenHashes: the digits of a hash count in either case, as Validate accepts them.
func TestTokenHashes(t *testing.T) {
	d := Declaration{Name: "west", TokenHashes: []string{strings.ToUpper(HashToken("w"))}}
	if err := d.Validate(); err != nil || !d.proves("w", nil) || d.proves("x", nil) {
		t.Errorf("an upper-case hash is valid (%v), and proves w %t, x %t", err, d.proves("w", nil), d.proves("x", nil))
	}
}

func TestFlags(t *testing.T) {
	path := folder(t)
	for args, want := range map[string]string{
		"": "",
		"--join a:1,b:2 --cluster rack --cluster-token-file " + path("token"):        "",
		"--join a:1 --join b:2 --cluster rack --cluster-token-file " + path("token"): "",
		"--join a:1 --cluster rack":                                                         "say who this cluster is",
		"--join a --cluster rack --cluster-token-file " + path("token"):                     "want host:port",
		"--join a:1 --cluster-token-file " + path("none"):                                   "--cluster-token-file: open",
		"--join a:1 --cluster-token-file " + path("token") + " --front-ca " + path("text"):  "has no certificate: want PEM",
		"--join a:1 --cluster-cert " + path("front.pem") + " --cluster-key " + path("text"): "--cluster-cert and --cluster-key",
	} {
		var f agent.Flags
		s := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flagset.Add(s, &f)
		if err := s.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := f.Config("v1")
		switch {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		case err != nil || (cfg == nil) != (args == ""):
			t.Errorf("%s: %+v, %v", args, cfg, err)
		case cfg != nil:
			token, err := cfg.Token()
			if strings.Join(cfg.Fronts, " ") != "a:1 b:2" || cfg.Cluster != "rack" || cfg.Version != "v1" || token != "secret" || err != nil {
				t.Errorf("%s: %+v, token %q, %v", args, cfg, token, err)
			}
		}
	}
}

func TestRead(t *testing.T) {
	path := folder(t)
	at := path("clusters.yaml")
	read := func(more string) (*File, error) {
		t.Helper()
		text := "name: x\nlisten: 127.0.0.1:7443\ncertificate: " + path("front.pem") + "\nkey: " + path("front.key") + "\n" + more
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Read(at, "v1")
	}
	peers := "peers: {service: 'fronts.example:7443', cluster: all, tokenFile: " + path("token") + ", authority: " + path("front.pem") + "}\n"
	f, err := read(peers)
	if err != nil {
		t.Fatal(err)
	}
	if p := f.Peers; f.Name != "x" || p == nil || p.Self != "x" || p.Cluster != "all" || p.Find == nil || len(p.Fronts) != 0 || p.TLS.ServerName != "fronts.example" {
		t.Errorf("%+v, peers %+v; want those that the name stands for, but itself", f, f.Peers)
	}
	if f, err = read("peers: {addresses: ['y:1'], tokenFile: " + path("token") + "}\n"); err != nil || f.Peers.Cluster != "x" || f.Peers.Find != nil || len(f.Peers.Fronts) != 1 {
		t.Errorf("%+v, %v; want the one that is named", f, err)
	}
	for more, want := range map[string]string{
		"listen: here\n":             "already defined",
		"clusters: [{name: desk}]\n": "anybody could say to be it",
		"clusterz: []\n":             "clusterz",
		"peers: {tokenFile: none}\n": "give addresses, or a service",
		"peers: {service: fronts, tokenFile: " + path("token") + "}\n": "want host:port",
		"clientAuthority: " + path("text") + "\n":                      "has no certificate",
	} {
		if _, err := read(more); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", more, err, want)
		}
	}
}
