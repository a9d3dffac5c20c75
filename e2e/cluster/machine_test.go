//go:build linux

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestLacking(t *testing.T) {
	look := func(absent ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			if slices.Contains(absent, name) {
				return "", exec.ErrNotFound
			}
			return "/bin/" + name, nil
		}
	}
	no := func() error { return errors.New("no such package") }
	yes := func() error { return nil }
	tests := []struct {
		name    string
		look    func(string) (string, error)
		seccomp func() error
		want    string // the packages to install
	}{
		{"nothing", look(), yes, ""},
		{"programs", look("iptables", "conntrack"), yes, "iptables conntrack"},
		{"headers", look(), no, "libseccomp-dev libc6-dev"},
		{"the compiler", look("gcc", "pkg-config"), no, "gcc pkg-config libseccomp-dev libc6-dev"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := lacking(tt.look, tt.seccomp)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want nothing lacking", err)
			case tt.want != "" && (err == nil || !strings.HasSuffix(err.Error(), "apt-get install --no-install-recommends "+tt.want)):
				t.Errorf("got %v, want an error that ends in %q", err, tt.want)
			}
		})
	}
}

// A process is known by its number and its start, for numbers are used again.
func TestAlive(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	self := record{PID: os.Getpid(), Boot: bootID(), Start: startOf(os.Getpid())}
	if !self.alive() {
		t.Errorf("this process: got %+v not alive", self)
	}
	for name, r := range map[string]record{
		"none":          {Boot: self.Boot},
		"another start": {PID: self.PID, Boot: self.Boot, Start: "1"},
		"another boot":  {PID: self.PID, Boot: "another", Start: self.Start},
	} {
		if r.alive() {
			t.Errorf("%s: got alive", name)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := record{PID: cmd.Process.Pid, Boot: self.Boot, Start: startOf(cmd.Process.Pid)}
	if !child.alive() {
		t.Error("a child: got not alive")
	}
	in.Close()
	_ = cmd.Wait() // it ends because its input does; how is all one
	if child.alive() {
		t.Error("a child that ended: got alive")
	}
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	got := missing(filepath.Join(dir, "a/b"))
	if want := []string{filepath.Join(dir, "a/b"), filepath.Join(dir, "a")}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := missing(dir); got != nil {
		t.Errorf("a folder that is there: got %q, want none", got)
	}
}

// TestCertify checks the certificates as clients of the API server do, and that they do not change.
func TestCertify(t *testing.T) {
	p := Places{Node: t.TempDir()}
	if err := certify(p); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(p.pki("ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("the authority: %v", err)
	}
	server := leaf(t, p, "apiserver")
	for _, host := range []string{NodeIP, firstIP, "kubernetes.default.svc"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("the API server as %s: %v", host, err)
		}
	}
	admin := leaf(t, p, "admin")
	if _, err := admin.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the administrator: %v", err)
	}
	if got := admin.Subject.Organization; !slices.Equal(got, []string{"system:masters"}) {
		t.Errorf("the administrator's group: got %q", got)
	}
	before, err := os.ReadFile(p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct{ Server string }
		}
	}
	if err := yaml.Unmarshal(before, &config); err != nil || len(config.Clusters) != 1 || config.Clusters[0].Cluster.Server != "https://10.250.0.2:6443" {
		t.Errorf("the kubeconfig: got %+v, %v", config, err)
	}
	if err := certify(p); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(p.Kubeconfig()); err != nil || string(after) != string(before) {
		t.Errorf("a second time: the kubeconfig is another, %v", err)
	}
}

func leaf(t *testing.T, p Places, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.pki(name+".crt"), p.pki(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}
