package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// frontDoor is a server that clusters join.
type frontDoor struct {
	*place
	at, certificate string
}

// newCertificate writes a self-signed cert.pem with key.pem for addresses. It returns the certificate, and a function
// that writes more files beside it.
func newCertificate(t *testing.T, dir string, addresses ...string) (certificate string, write func(name string, data []byte) string) {
	t.Helper()
	var ips []net.IP
	for _, a := range addresses {
		ips = append(ips, net.ParseIP(a))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: ips,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write = func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate = write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return certificate, write
}

// newFrontDoor starts a front door without functions of its own, which takes clusters of these names with their names as tokens.
func newFrontDoor(t *testing.T, clusters ...string) *frontDoor {
	t.Helper()
	return newNamedDoor(t, "front", nil, clusters...)
}

// newNamedDoor is newFrontDoor with a name, and more arguments of the server.
func newNamedDoor(t *testing.T, name string, args []string, clusters ...string) *frontDoor {
	t.Helper()
	dir := t.TempDir()
	f := &frontDoor{}
	var write func(name string, data []byte) string
	f.certificate, write = newCertificate(t, dir, "127.0.0.1")
	file := fmt.Sprintf("name: %s\nlisten: 127.0.0.1:0\ncertificate: %s\nkey: %s\nclusters:\n", name, f.certificate, filepath.Join(dir, "key.pem"))
	for _, name := range clusters {
		file += fmt.Sprintf("- name: %s\n  tokenHashes: [%x]\n  functions: [\"default/*\"]\n", name, sha256.Sum256([]byte(name)))
	}
	f.place = newServer(t, append(args, "--clusters", write("clusters.yaml", []byte(file)))...)
	f.at = f.joinAddress(t)
	return f
}

// joinAddress returns the address where clusters join a front door.
func (p *place) joinAddress(t *testing.T) string {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(p.server.output()))
	for lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "clusters may join" {
			return line.Address
		}
	}
	t.Fatalf("the front door does not say where clusters join:\n%s", p.server.output())
	return ""
}

// join starts a server that is a cluster of the front door.
func (f *frontDoor) join(t *testing.T, name string, args ...string) *place {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(name+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newServer(t, append([]string{"--join", f.at, "--cluster", name, "--cluster-token-file", token, "--front-ca", f.certificate}, args...)...)
}

// TestClusters checks that a front door without functions serves those of clusters that dial in.
func TestClusters(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t, "desk", "rack")
	desk := f.join(t, "desk", "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c := newOpenAI(f.place)
	ask := func() error {
		got, err := c.Chat.Completions.New(ctx, chat("pico", "echo hello"))
		if err == nil && got.Choices[0].Message.Content != "hello" {
			err = fmt.Errorf("answered %q", got.Choices[0].Message.Content)
		}
		return err
	}
	if err := retry(func() error { // until the cluster has come there is no such model
		list, err := c.Models.List(ctx)
		if err == nil && len(list.Data) == 0 {
			err = errors.New("no models")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err != nil {
		t.Fatalf("from nothing: %v", err)
	}
	t.Run("stream", func(t *testing.T) {
		stream := c.Chat.Completions.NewStreaming(ctx, chat("pico", "echo hello world"))
		defer stream.Close()
		var text strings.Builder
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				text.WriteString(choice.Delta.Content)
			}
		}
		if err := stream.Err(); err != nil || text.String() != "hello world" {
			t.Errorf("%q, %v", text.String(), err)
		}
	})
	t.Run("asleep", func(t *testing.T) {
		if err := retry(func() error { // until the cluster has heard that nothing waits any more
			_, err := desk.rouse("sleep", "pico")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a cluster is killed", func(t *testing.T) {
		if err := desk.server.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-desk.server.ended
		answered := make(chan error, 1)
		go func() { answered <- ask() }() // it is held: no cluster has the model
		f.join(t, "rack", "--model", "pico")
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
	t.Run("listed", func(t *testing.T) {
		f.join(t, "rack", "--model", "pico")
		want := regexp.MustCompile(`^CLUSTER +STATE +AGENTS +LATENCY +MODELS +AWAKE +RUNNING +SINCE\ndesk +away +0 +- .*\nrack +joined +1 +\S+s +1 .*\n$`)
		if err := retry(func() error { // until it has come
			out, err := f.rouse("clusters")
			if err == nil && !want.MatchString(out) {
				err = fmt.Errorf("it prints\n%s", out)
			}
			return err
		}); err != nil {
			t.Errorf("rouse clusters: %v", err)
		}
		if out, err := desk.rouse("clusters"); err == nil {
			t.Errorf("rouse clusters of a server that has ended printed\n%s", out)
		}
	})
	t.Run("an unknown model", func(t *testing.T) {
		var e *openai.Error
		_, err := c.Chat.Completions.New(ctx, chat("nothing", "hello"))
		if !errors.As(err, &e) || e.StatusCode != 404 {
			t.Errorf("%v, want 404", err)
		}
	})
}

// TestFrontDoorEnds checks that a front door that ends answers the requests that it holds for a cluster, and announces
// its end.
func TestFrontDoorEnds(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t, "desk")
	desk := f.join(t, "desk", "-f", absolute(t, fakes))
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c := newOpenAI(f.place, option.WithMaxRetries(0))
	if err := retry(func() error { // until the cluster has come
		_, err := c.Models.Get(ctx, "slow")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Chat.Completions.New(ctx, chat("slow", "hello"))
		answered <- err
	}()
	if err := retry(func() error { // until the cluster loads the model for it
		if !strings.Contains(desk.server.output(), `"msg":"start","function":"default/slow"`) {
			return errors.New("nothing is started")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.server.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("a request that is held while the front door ends: %v", err)
	}
	<-f.server.ended
	if err := retry(func() error {
		for _, line := range []string{"a front door is ending", "a front door has ended"} {
			if !strings.Contains(desk.server.output(), line) {
				return fmt.Errorf("the cluster does not say %q", line)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestNotAnAgent checks that the port of clusters refuses other protocols.
func TestNotAnAgent(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t, "desk")
	for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x00\x05hello", strings.Repeat("x", 1<<20)} {
		conn, err := net.Dial("tcp", f.at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, said)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%.20q: the connection stays open", said)
		}
		_ = conn.Close()
	}
}
