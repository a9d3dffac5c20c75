package serve_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken")
	l, _, err := serve.Listen("unix:" + taken)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "datagrams"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	for addr, want := range map[string]string{
		":8080":                             "this host only",
		"0.0.0.0:0":                         "this host only",
		"192.0.2.1:80":                      "this host only",
		"[::]:0":                            "this host only",
		"example.com:80":                    "this host only",
		"8080":                              "want 127.0.0.1:PORT",
		"":                                  "want 127.0.0.1:PORT",
		"http://0.0.0.0:0":                  "this host only",
		"https://127.0.0.1:0":               "want 127.0.0.1:PORT",
		"127.0.0.1:99999":                   "99999",
		"unix:":                             "a socket path of 0 bytes",
		"unix:/" + strings.Repeat("x", 200): "201 bytes",
		"unix:" + file:                      "not a socket",
		"unix:" + taken:                     "another process listens there",
		"unix:" + dir + "/datagrams":        "find out whether a process listens there",
		"unix:" + dir + "/no/where":         "no such file",
	} {
		l, _, err := serve.Listen(addr)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %q: %v, want an error with %q", addr, err, want)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file in the way is now %q, %v", data, err)
	}
}

func TestListen(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "localhost:0", "http://127.0.0.1:0"} {
		l, address, err := serve.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(address, "http://127.0.0.1:") && !strings.HasPrefix(address, "http://[::1]:") || strings.HasSuffix(address, ":0") {
			t.Errorf("listen on %s is announced as %s", addr, address)
		}
		l.Close()
	}
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // as a process that was killed
	stale.Close()
	l, address, err := serve.Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || address != "unix:"+path {
		t.Errorf("a socket over a stale one: %v, %v, announced as %s", info, err, address)
	}
}
