package cli

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// folder makes the folder of a server on port 8080 below a base, with these modes.
func folder(t *testing.T, base, server os.FileMode) (path, socket string) {
	t.Helper()
	path, err := os.MkdirTemp("", "r") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	dir := filepath.Join(path, "8080")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{path: base, dir: server} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	return path, filepath.Join(dir, "admin.sock")
}

// TestForeignFolders: a server is not looked for where others could have put one.
func TestForeignFolders(t *testing.T) {
	for name, tc := range map[string]struct {
		base, server os.FileMode
		owner        int
		refused      bool
	}{
		"ours":                         {0o700, 0o700, os.Getuid(), false},
		"anybody may read the base":    {0o755, 0o700, os.Getuid(), true},
		"anybody may write the server": {0o700, 0o777, os.Getuid(), true},
		"the base is another user's":   {0o700, 0o700, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			base, socket := folder(t, tc.base, tc.server)
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if tc.owner != os.Getuid() {
				if err := os.Chown(base, tc.owner, -1); err != nil {
					t.Skip("only root gives a folder to another user")
				}
			}
			got, err := findServer(t.Context(), base)
			switch {
			case tc.refused && (err == nil || !strings.Contains(err.Error(), "must be yours alone")):
				t.Errorf("got %s, %v; want a refusal", got, err)
			case !tc.refused && (err != nil || got != local.AdminSocket(base, 8080)):
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// TestMain is also a server of another user.
func TestMain(m *testing.M) {
	if path := os.Getenv("LISTEN_AT"); path != "" {
		l, err := net.Listen("unix", path)
		if err != nil {
			os.Exit(1)
		}
		_ = os.Chmod(path, 0o777)
		_, _ = os.Stdout.WriteString("listening\n")
		_ = http.Serve(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { // until it is killed
			body, _ := io.ReadAll(r.Body)
			_, _ = os.Stdout.Write(body)
		}))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestForeignServer: a socket behind which another user listens is told nothing, however it was named.
func TestForeignServer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts programs of other users")
	}
	base, socket := folder(t, 0o777, 0o777)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "program") // where another user can start it
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, raw, 0o755); err != nil { // it is to be started by another user
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"LISTEN_AT=" + socket}
	cmd.Dir = base
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("listening\n"))
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatal(err)
	}
	c := newClient(api.Endpoint("unix:"+socket), "")
	err = c.Call(t.Context(), http.MethodPost, "/rouse/v1/functions", map[string]string{"secret": "hunter2"}, nil)
	if err == nil || !strings.Contains(err.Error(), "runs as user 1, and this process as 0") {
		t.Errorf("got %v, want a refusal", err)
	}
	stop()
	heard, _ := io.ReadAll(out)
	_ = cmd.Wait() // it was killed
	if len(heard) > 0 {
		t.Errorf("it was told %q", heard)
	}
}

// TestClosedDoor: who asks a front door for what only its socket answers is told where to ask.
func TestClosedDoor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"unknown path","code":"unknown_path"}}`)
	}))
	defer server.Close()
	c := newClient(api.Endpoint(server.URL), "")
	for path, want := range map[string]bool{admin.PathFunctions: true, "/v1/nothing": false} {
		err := c.Call(t.Context(), http.MethodGet, path, nil, nil)
		if err == nil || strings.Contains(err.Error(), "--admin-token-file") != want {
			t.Errorf("%s: %v, want advice: %v", path, err, want)
		}
	}
}

// TestCertificateOfTheServer: the certificate of the user's own server is known by its fingerprint, all others by an authority.
func TestCertificateOfTheServer(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	for fingerprint, want := range map[string]string{
		peertls.Fingerprint(server.Certificate().Raw): "", "AB:CD": "another server answers", "": "SSL_CERT_FILE names",
	} {
		c := newClient(api.Endpoint(server.URL), "")
		c.fingerprint = fingerprint
		if err := c.Call(t.Context(), http.MethodGet, "/", nil, nil); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with the fingerprint %q: %v, want %q", fingerprint, err, want)
		}
	}
}
