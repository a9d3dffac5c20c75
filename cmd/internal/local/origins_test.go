package local_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
)

// ask sends a request as a browser would, and returns the answer and what is wrong with its body.
func (s *serverOf) ask(method, path, host string, header ...string) (*http.Response, string) {
	s.t.Helper()
	resp, body := s.said(method, path, host, header...)
	if method == http.MethodPost && !json.Valid([]byte(body)) {
		return resp, "no JSON: " + body
	}
	return resp, ""
}

// said is ask, with the body.
func (s *serverOf) said(method, path, host string, header ...string) (*http.Response, string) {
	s.t.Helper()
	body := ""
	if method == http.MethodPost {
		body = question
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.info.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, string(text)
}

const allowOrigin = "Access-Control-Allow-Origin"

// TestForeignPages: pages of other sites, and those that have their name lead here, get nothing; pages of
// this machine and those that are named do.
func TestForeignPages(t *testing.T) {
	s := start(t, func(c *local.Config) { c.Origins = []string{"https://chat.example.com", "app://obsidian.md"} })
	port := s.info.URL[strings.LastIndex(s.info.URL, ":"):]
	for name, tc := range map[string]struct {
		method, path, host string
		header             []string
		status             int
		allowed            string
	}{
		"no page":                     {"GET", "/v1/models", "", nil, 200, ""},
		"localhost":                   {"GET", "/v1/models", "localhost" + port, nil, 200, ""},
		"localhost.":                  {"GET", "/v1/models", "LocalHost." + port, nil, 200, ""},
		"IPv6":                        {"GET", "/v1/models", "[::1]" + port, nil, 200, ""},
		"a function's own host":       {"POST", "/v1/chat/completions", "pico.default.localhost" + port, nil, 200, ""},
		"another name":                {"GET", "/v1/models", "evil.example" + port, nil, 403, ""},
		"another name without a port": {"GET", "/v1/models", "evil.example", nil, 403, ""},
		"a name that looks local":     {"GET", "/v1/models", "localhost.evil.example", nil, 403, ""},
		"another address":             {"GET", "/v1/models", "192.0.2.1", nil, 403, ""},
		"a page that rebinds":         {"POST", "/v1/chat/completions", "evil.example" + port, []string{"Origin", "http://evil.example" + port}, 403, ""},
		"an administrative path":      {"GET", "/rouse/v1/functions", "evil.example", nil, 403, ""},
		"the name of an allowed page": {"GET", "/v1/models", "chat.example.com", nil, 200, ""},
		"a foreign page":              {"POST", "/v1/chat/completions", "", []string{"Origin", "https://evil.example"}, 403, ""},
		"a foreign page in Ollama's":  {"POST", "/api/chat", "", []string{"Origin", "https://evil.example"}, 403, ""},
		"no page that can be named":   {"POST", "/v1/chat/completions", "", []string{"Origin", "null"}, 403, ""},
		"almost an allowed page":      {"GET", "/v1/models", "", []string{"Origin", "https://chat.example.com.evil.example"}, 403, ""},
		"an allowed one, not by TLS":  {"GET", "/v1/models", "", []string{"Origin", "http://chat.example.com"}, 403, ""},
		"a script without CORS":       {"GET", "/v1/models", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, ""},
		"a form without an origin":    {"POST", "/v1/chat/completions", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 403, ""},
		"a link":                      {"GET", "/v1/models", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, ""},
		"an allowed page":             {"POST", "/v1/chat/completions", "", []string{"Origin", "https://chat.example.com", "Sec-Fetch-Site", "cross-site"}, 200, "https://chat.example.com"},
		"an allowed program":          {"GET", "/v1/models", "", []string{"Origin", "app://obsidian.md"}, 200, "app://obsidian.md"},
		"a page of this machine":      {"GET", "/v1/models", "", []string{"Origin", "http://localhost:3000"}, 200, "http://localhost:3000"},
		"its error":                   {"GET", "/nothing", "", []string{"Origin", "http://127.0.0.1:3000"}, 404, "http://127.0.0.1:3000"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, broken := s.ask(tc.method, tc.path, tc.host, tc.header...)
			if resp.StatusCode != tc.status || resp.Header.Get(allowOrigin) != tc.allowed || broken != "" {
				t.Errorf("got %s, allowed %q, %s; want %d, %q", resp.Status, resp.Header.Get(allowOrigin), broken, tc.status, tc.allowed)
			}
			if tc.allowed != "" && !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Origin") {
				t.Error("caches are not told that the answer is for this page")
			}
		})
	}
}

// TestShapeOfRefusedPages: a refusal is an error that the path's clients can read.
func TestShapeOfRefusedPages(t *testing.T) {
	s := start(t, nil)
	for path, want := range map[string]string{
		"/v1/chat/completions": `{"error":{"message":"`,
		"/v1/messages":         `{"type":"error","error":{"type":"permission_error",`,
		"/api/chat":            `{"error":"`,
	} {
		for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
			if resp, body := s.said(http.MethodPost, path, "", header...); resp.StatusCode != 403 || !strings.HasPrefix(body, want) {
				t.Errorf("%s, %s: %s %s, want %s", path, header, resp.Status, body, want)
			}
		}
		if resp, body := s.said(http.MethodPost, path, "evil.example"); resp.StatusCode != 403 || !strings.HasPrefix(body, want) {
			t.Errorf("%s by another name: %s %s, want %s", path, resp.Status, body, want)
		}
	}
}

// TestPreflight: a browser's question before a request is answered for those that may, without waking anybody.
func TestPreflight(t *testing.T) {
	s := start(t, func(c *local.Config) { c.Origins = []string{"https://chat.example.com"} })
	ask := []string{"Origin", "https://chat.example.com", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,x-stainless-lang", "Access-Control-Request-Private-Network", "true"}
	resp, _ := s.ask(http.MethodOptions, "/v1/chat/completions", "", ask...)
	h := resp.Header
	if resp.StatusCode != http.StatusNoContent || h.Get(allowOrigin) != "https://chat.example.com" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") ||
		h.Get("Access-Control-Allow-Headers") != "authorization,content-type,x-stainless-lang" || h.Get("Access-Control-Allow-Private-Network") != "true" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("got %s %v", resp.Status, h)
	}
	ask[1] = "https://evil.example"
	if resp, _ := s.ask(http.MethodOptions, "/v1/chat/completions", "", ask...); resp.StatusCode != http.StatusForbidden || resp.Header.Get(allowOrigin) != "" {
		t.Errorf("a foreign page: got %s %v", resp.Status, resp.Header)
	}
}

// TestOpenListener: where others reach the front door any host is right, but foreign pages are refused all the same.
func TestOpenListener(t *testing.T) {
	s := start(t, func(c *local.Config) { c.Listen = "0.0.0.0:0" })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.info.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s.info.URL = "http://127.0.0.1:" + port
	if resp, _ := s.ask(http.MethodPost, "/v1/chat/completions", "gpu-box.lan"); resp.StatusCode != 200 {
		t.Errorf("by its name in the network: got %s", resp.Status)
	}
	if resp, _ := s.ask(http.MethodGet, "/v1/models", "gpu-box.lan", "Origin", "http://gpu-box.lan"); resp.StatusCode != 200 {
		t.Errorf("a page that it serves itself: got %s", resp.Status)
	}
	if resp, _ := s.ask(http.MethodPost, "/v1/chat/completions", "gpu-box.lan", "Origin", "https://evil.example"); resp.StatusCode != 403 {
		t.Errorf("a foreign page: got %s", resp.Status)
	}
}

func TestOriginsThatAreNone(t *testing.T) {
	for _, bad := range []string{"example.com", "https://example.com/", "https://", "https://example.com/path", ""} {
		c := local.Config{Functions: []api.Function{{}}, Origins: []string{bad}}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "https://chat.example.com") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// TestListsOfAnOpenListener: which functions there are, and the metrics, are for this machine, trusted peers
// and the administrator once others reach the front door; nobody else is told a path of the host.
func TestListsOfAnOpenListener(t *testing.T) {
	token := func() (string, error) { return "a-token-that-is-long-enough", nil }
	s := start(t, func(c *local.Config) {
		c.Listen, c.AdminToken = "0.0.0.0:0", func() (string, error) { return token() }
		c.Peers.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		c.Peers.Trusted = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.info.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, header ...string) (int, string) {
		t.Helper()
		return s.send(http.MethodGet, api.Endpoint("http://127.0.0.1:"+port), path, "", header...)
	}
	stranger, friend := []string{"X-Forwarded-For", "203.0.113.9"}, []string{"X-Forwarded-For", "198.51.100.7"}
	admin := append([]string{"Authorization", "Bearer a-token-that-is-long-enough"}, stranger...)
	for _, path := range []string{"/metrics", "/v1/models"} {
		for who, tc := range map[string]struct {
			header []string
			status int
		}{"a stranger": {stranger, 401}, "a trusted peer": {friend, 200}, "the administrator": {admin, 200}, "this machine": {nil, 200}} {
			if status, body := get(path, tc.header...); status != tc.status {
				t.Errorf("%s of %s: got %d %s, want %d", path, who, status, body, tc.status)
			}
		}
	}
	if status, body := s.send(http.MethodPost, api.Endpoint("http://127.0.0.1:"+port), "/v1/chat/completions", `{"model":"picoo"}`, stranger...); status != 404 || strings.Contains(body, `\"pico\"`) || strings.Contains(body, "did you mean") {
		t.Errorf("a stranger's wrong name: got %d %s", status, body)
	}
	if status, _ := s.send(http.MethodPost, api.Endpoint("http://127.0.0.1:"+port), "/v1/chat/completions", question, stranger...); status != 200 {
		t.Errorf("a stranger's request: got %d", status)
	}
	token = func() (string, error) { return "", errors.New("open /etc/rouse/secret-place: no such file") }
	if status, body := get("/rouse/v1/info", admin...); status != 401 || strings.Contains(body, "secret-place") {
		t.Errorf("without the token's file: got %d %s", status, body)
	}
}

// TestHTTP2: who knows that the front door speaks HTTP/2 may do so without TLS, under the same rules.
func TestHTTP2(t *testing.T) {
	s := start(t, nil)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport}
	for host, want := range map[string]int{"": http.StatusOK, "localhost": http.StatusOK, "evil.example.com": http.StatusForbidden} {
		if resp, wrong := s.ask(http.MethodPost, "/v1/chat/completions", host); resp.ProtoMajor != 2 || resp.StatusCode != want || wrong != "" {
			t.Errorf("host %q: %s %s %s, want %d over HTTP/2", host, resp.Proto, resp.Status, wrong, want)
		}
	}
}
