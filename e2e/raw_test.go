package e2e

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestBrokenRequests sends what no HTTP client sends, and reads what comes back
// to the end: no answer may look like a good one.
func TestBrokenRequests(t *testing.T) {
	t.Parallel()
	p := newServer(t, "-f", absolute(t, fakes))
	const post = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
	stream := `{"model":"fake","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"count"}]}`
	for name, tt := range map[string]struct {
		request string
		want    []string // words of the answer
		not     []string
	}{
		"no HTTP":               {"hello\r\n\r\n", []string{"400 Bad Request"}, nil},
		"a body that ends":      {post + "Content-Length: 500\r\n\r\n" + `{"model":"fake"`, []string{" 400 ", "the body ends after 15 bytes"}, nil},
		"a chunk that ends":     {post + "Transfer-Encoding: chunked\r\n\r\nff\r\n" + `{"model":"fake"`, []string{" 400 ", "the body ends"}, nil},
		"a bad chunk":           {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", []string{" 400 ", "read the body"}, nil},
		"two ends":              {post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{" 400 ", "a Content-Length and a Transfer-Encoding"}, []string{"200"}},
		"two models":            {post + "Content-Length: 32\r\n\r\n" + `{"model":"fake","model":"other"}`, []string{" 400 ", "the field model occurs twice"}, nil},
		"a model in capitals":   {post + "Content-Length: 31\r\n\r\n" + `{"model":"fake","Model":"fake"}`, []string{" 400 ", "is not model"}, []string{"200"}},
		"nothing":               {"", nil, []string{"200"}},
		"a client that listens": {post + "X-Fault: pause=5ms\r\nContent-Length: " + strconv.Itoa(len(stream)) + "\r\n\r\n" + stream, nil, []string{"[DONE]", "\r\n0\r\n\r\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := exchange(t, "127.0.0.1:"+p.server.port(), tt.request)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("the answer %q lacks %q", got, want)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(got, not) {
					t.Errorf("the answer %q has %q", got, not)
				}
			}
		})
	}
	if _, err := p.rouse("run", "--max-tokens", "2", "fake", "count"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// exchange sends a text, ends its own side, and returns all that comes back.
func exchange(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("read the answer: %v after %q", err, got)
	}
	return string(got)
}
