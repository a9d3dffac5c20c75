package page_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/cmd/internal/page/signin"
)

// TestSignInInABrowser: a person signs in to a server's page by a real OpenID provider, in a real Chromium, and out.
func TestSignInInABrowser(t *testing.T) {
	chromium := browserFor(t)
	_, _, rouse := serve(t)
	provider := filepath.Join(t.TempDir(), "oidc")
	if out, err := exec.Command("go", "build", "-C", "../../../e2e/oidc", "-o", provider, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	issuer := fmt.Sprintf("http://localhost:%d/", l.Addr().(*net.TCPAddr).Port)
	l.Close()
	served := exec.Cmd{Path: rouse.Path, Env: rouse.Env, Args: []string{"rouse", "page", "--listen", "127.0.0.1:0", "--oidc-issuer", issuer, "--oidc-client-id", "rouse", "--allow-email", "test-user@zitadel.ch"}}
	out, err := served.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = served.Process.Signal(syscall.SIGTERM)
		if err := served.Wait(); err != nil {
			t.Errorf("rouse page ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	var first struct{ URL string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || first.URL == "" {
		t.Fatalf("rouse page says %q", lines.Text())
	}
	go func() { // ends with the program
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
	op := exec.Command(provider, "--issuer", issuer, "--redirect", first.URL+signin.PathCallback)
	if err := op.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = op.Process.Kill()
		_ = op.Wait()
	})
	until(t, issuer+".well-known/openid-configuration")
	node(t, "test/signin.mjs", chromium, first.URL, issuer, "default/one")
}

// until waits until something answers at url.
func until(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	t.Fatalf("nothing answers at %s", url)
}
