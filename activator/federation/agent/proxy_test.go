package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// proxy accepts connections one by one and answers requests for a tunnel. It returns its address.
func proxy(t *testing.T, answer func(r *http.Request) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer(r))
				_, _ = io.Copy(conn, in) // the tunnel leads to an echo
			}()
		}
	}()
	return l.Addr().String()
}

// TestProxy: a front door is reached through the environment's proxy, by CONNECT, with its user and password. Data
// that arrives with the proxy's answer is not lost. Hosts in NO_PROXY are dialled directly.
func TestProxy(t *testing.T) {
	at := proxy(t, func(r *http.Request) string {
		if user, password, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth(); !ok || user != "me" || password != "se:cret" {
			return "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
		}
		if r.Method != http.MethodConnect || r.Host != "front.example:7443" {
			return "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
		}
		return "HTTP/1.1 200 Connection established\r\n\r\nfirst "
	})
	t.Setenv("HTTPS_PROXY", "http://me:se%3Acret@"+at)
	conn, err := dial(t.Context(), "front.example:7443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "second"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("first second"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "first second" {
		t.Errorf("got %q, %v", got, err)
	}
	for address, want := range map[string]string{"other.example:7443": "403 Forbidden"} {
		if _, err := dial(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	t.Setenv("HTTPS_PROXY", "http://me:wrong@"+at)
	if _, err := dial(t.Context(), "front.example:7443"); err == nil || !strings.Contains(err.Error(), "407") || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("with another password: %v, want a 407 and no password", err)
	}
	t.Setenv("NO_PROXY", "10.0.0.0/8,.example")
	if _, err := dial(t.Context(), "front.example:7443"); err == nil || strings.Contains(err.Error(), "proxy") {
		t.Errorf("whom NO_PROXY names: %v, want it dialled directly, where there is no such host", err)
	}
}

// TestProxyThatIsSilent: a proxy that accepts connections and never answers blocks no longer than the dial timeout.
func TestProxyThatIsSilent(t *testing.T) {
	at := proxy(t, func(*http.Request) string { <-t.Context().Done(); return "" })
	t.Setenv("HTTPS_PROXY", "http://"+at)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := dial(ctx, "front.example:7443")
		ended <- err
	}()
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was dialled")
	}
}
