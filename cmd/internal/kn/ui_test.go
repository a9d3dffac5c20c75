package kn_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/kn"
)

// ui runs kn rouse ui and returns where the page is, and its token.
func (c *fakeCluster) ui(args ...string) (url, token string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1) // sent to once
	go func() {
		err := kn.Execute(ctx, append([]string{"ui", "--kubeconfig", c.kubeconfig}, args...), in, io.Discard)
		in.CloseWithError(err)
		ended <- err
	}()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("kn rouse ui ended with %v", err)
		}
	})
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	go io.Copy(io.Discard, lines)
	url, token, _ = strings.Cut(strings.TrimSpace(address), "/#token=")
	return url, token
}

func ask(t *testing.T, method, url string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k := 0; k+1 < len(header); k += 2 {
		if req.Header.Set(header[k], header[k+1]); header[k] == "Host" {
			req.Host = header[k+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// TestUI checks that the page of a cluster accepts only requests from itself with the cluster's token. Its requests
// reach the autoscaler and the front door with the person's rights. No credential of one side is sent to the other.
func TestUI(t *testing.T) {
	c, _ := populated(t)
	api := c.admin
	c.admin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin")+r.Header.Get("Cookie")+r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("X-Rouse-Token") != token {
			t.Errorf("the autoscaler is told %v", r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		api.ServeHTTP(w, r)
	})
	c.front = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s key=%s token=%s%s body=%s", r.URL.Path, r.Header.Get("X-Api-Key"), r.Header.Get("X-Rouse-Token"), r.Header.Get("X-Rouse-Page"), body)
	})
	url, secret := c.ui()
	if status, h, body := ask(t, http.MethodGet, url+"/"); status != 200 || !strings.HasPrefix(body, "<!doctype html>") || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the page: %d %v", status, h)
	}
	bearer := []string{"Authorization", "Bearer " + secret, "Cookie", "x=y"}
	for name, tc := range map[string]struct {
		method, path string
		header       []string
		status       int
		has          string
	}{
		"what there is":       {"GET", "/rouse/v1/functions", append([]string{"Origin", url, "Sec-Fetch-Site", "same-origin"}, bearer...), 200, "tiny-00002"},
		"an order":            {"POST", "/rouse/v1/functions/default/tiny-00002/wake", bearer, 200, "tiny-00002"},
		"no token":            {"GET", "/rouse/v1/functions", nil, 401, "address of the page"},
		"another token":       {"GET", "/rouse/v1/functions", []string{"Authorization", "Bearer x"}, 401, ""},
		"the cluster's token": {"GET", "/rouse/v1/functions", []string{"X-Rouse-Token", token}, 401, ""},
		"another origin":      {"GET", "/rouse/v1/functions", append([]string{"Origin", "https://evil.example"}, bearer...), 403, ""},
		"another name":        {"GET", "/rouse/v1/functions", append([]string{"Host", "evil.example"}, bearer...), 403, "127.0.0.1"},
		"a page of another":   {"GET", "/", []string{"Host", "evil.example:80"}, 403, ""},
		"events of instances": {"POST", control.PathEvents, bearer, 404, ""},
		"joining":             {"POST", control.PathRegister, bearer, 404, ""},
		"metrics":             {"GET", "/metrics", bearer, 404, ""},
		"a question":          {"POST", "/v1/chat/completions", []string{"X-Rouse-Page", secret, "Authorization", "Bearer sk-client"}, 200, "/v1/chat/completions key=sk-client token= body="},
		"a stranger's":        {"POST", "/v1/chat/completions", []string{"Authorization", "Bearer " + secret}, 401, ""},
	} {
		status, h, body := ask(t, tc.method, url+tc.path, tc.header...)
		if status != tc.status || !strings.Contains(body, tc.has) || h.Get("Set-Cookie") != "" || strings.Contains(body, token) {
			t.Errorf("%s: %d %s, want %d and %q", name, status, body, tc.status, tc.has)
		}
	}
	admin := c.admin
	for _, tc := range []struct {
		path, want string
		change     func()
	}{
		{"/rouse/v1/info", "you may not get services/proxy", func() {
			c.deny = func(verb, resource, _ string) bool { return verb == "get" && resource == "services/proxy" }
		}},
		{"/rouse/v1/info", "no autoscaler leads", func() { c.deny, c.admin = nil, nil }},
		{"/rouse/v1/info", "does not take the token", func() {
			c.admin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("X-Rouse-Token")
				api.ServeHTTP(w, r)
			})
		}},
		{"/v1/models", "services/http:rouse:http --subresource=proxy", func() {
			c.admin, c.deny = admin, func(_, resource, _ string) bool { return resource == "services/proxy of the front door" }
		}},
	} {
		tc.change()
		if status, _, body := ask(t, http.MethodGet, url+tc.path, append(bearer, "X-Rouse-Page", secret)...); status != http.StatusBadGateway || !strings.Contains(body, tc.want) {
			t.Errorf("%d %s, want %q", status, body, tc.want)
		}
	}
}

// TestUIRefuses to start where it would be open to others, or where there is nothing to see.
func TestUIRefuses(t *testing.T) {
	c, _ := populated(t)
	c.fails([]string{"--listen 0.0.0.0:0", "loopback"}, "ui", "--listen", "0.0.0.0:0")
	c.fails([]string{"--listen"}, "ui", "--listen", "nonsense")
	c.take("rouse")
	c.fails([]string{"kubectl apply -k"}, "ui")
}
