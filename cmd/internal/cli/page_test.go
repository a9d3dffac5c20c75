package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestPage: what it serves to everybody, and that it ends.
func TestPage(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	t.Setenv("ROUSE_PAGE_ALLOW_GROUPS", "a,b")
	ended := make(chan error, 1) // sent to once
	go func() {
		ended <- Execute(ctx, []string{"page", "--server", server.URL, "--listen", "127.0.0.1:0", "--oidc-issuer", "http://127.0.0.1:1", "--oidc-client-id", "rouse",
			"--oidc-ca-file", filepath.Join(t.TempDir(), "none"), "--oidc-client-secret-file", filepath.Join(t.TempDir(), "none")}, nil, in, io.Discard)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	var first struct{ URL string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || !strings.HasPrefix(first.URL, "http://localhost:") {
		t.Fatalf("it says %q", lines.Text())
	}
	go func() { // ends with the program
		for lines.Scan() {
		}
	}()
	for path, want := range map[string]int{"/": 200, "/healthz": 204, "/readyz": 204, "/rouse/page/page.js": 200, "/rouse/v1/functions": 401, "/v1/models": 401, "/rouse/signin": 503, "/metrics": 404} {
		resp, err := http.Get(first.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || path == "/" && !strings.Contains(string(body), "data-sign-in") {
			t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, want, body)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPageRefuses to start where nobody could sign in, or anybody.
func TestPageRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bad, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROUSE_PAGE_SESSION", "for ever")
	if err := Execute(t.Context(), []string{"page"}, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "$ROUSE_PAGE_SESSION") {
		t.Errorf("a bad variable: %v", err)
	}
	t.Setenv("ROUSE_PAGE_SESSION", "")
	for want, args := range map[string]string{
		"nobody may sign in":  "--oidc-issuer https://id.example --oidc-client-id rouse --url https://rouse.example",
		"--oidc-client-id":    "--oidc-issuer https://id.example --url https://rouse.example --allow-group g",
		"--oidc-issuer":       "--oidc-client-id rouse --allow-group g",
		`--url ""`:            "--listen :0 --oidc-issuer https://id.example --oidc-client-id rouse --allow-group g",
		"no certificate":      "--oidc-issuer https://id.example --oidc-client-id rouse --allow-group g --oidc-ca-file " + bad,
		"--front":             "--oidc-issuer https://id.example --oidc-client-id rouse --allow-group g --front nonsense",
		"read the token":      "--oidc-issuer https://id.example --oidc-client-id rouse --allow-group g --token-file /nonexistent/token",
		"--listen":            "--listen nonsense",
		"unknown flag: --oid": "--oid x",
	} {
		err := Execute(t.Context(), append([]string{"page", "--server", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"}, strings.Fields(args)...), nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestPageToken: the token is the one that the file has now, and a server that does not take it is no session that has ended.
func TestPageToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	client := http.Client{Transport: bearer{http.DefaultTransport, file}}
	for _, token := range []string{"one", "two\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != "Bearer "+strings.TrimSpace(token) {
			t.Errorf("the server is told %q", got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Get(server.URL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v %v", resp, err)
	}
	for status, body := range map[int]string{401: "", 403: "", 404: `{"error":{"code":"` + api.CodeUnknownPath + `"}}`} {
		if refusedToken(&http.Response{StatusCode: status}, "GET", []byte(body)) == nil {
			t.Errorf("%d %s is taken for the page's own", status, body)
		}
	}
	if err := refusedToken(&http.Response{StatusCode: 404}, "GET", []byte(`{"error":{"code":"model_not_found"}}`)); err != nil {
		t.Error(err)
	}
}

// TestPageInACluster: the manifests know the command's flags and variables.
func TestPageInACluster(t *testing.T) {
	raw, err := os.ReadFile("../../../manifests/components/page/page.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`- --([a-z-]+)=`).FindAllSubmatch(raw, -1)
	variables := regexp.MustCompile(`name: (ROUSE_\w+)`).FindAllSubmatch(raw, -1)
	if len(flags) < 5 || len(variables) != len(pageVariables) {
		t.Errorf("%d flags and %d variables, of which there are %d", len(flags), len(variables), len(pageVariables))
	}
	cmd := Command()
	page, _, err := cmd.Find([]string{"page"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flags {
		if name := string(f[1]); page.Flag(name) == nil {
			t.Errorf("there is no flag --%s", name)
		}
	}
	for _, v := range variables {
		if flag := pageVariables[string(v[1])]; page.Flag(flag) == nil {
			t.Errorf("%s stands for no flag", v[1])
		}
	}
}
