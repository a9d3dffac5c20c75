package knative

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOverTLS: the TLS port speaks both versions of HTTP, and refuses a request with two lengths, like the other
// ports.
func TestOverTLS(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.Proto)
	}))
	go func() { _ = s.Serve(overTLS(s, certificates.TLS)(l)) }()
	defer s.Close()
	trust := certificates.Client().Transport.(*http.Transport).TLSClientConfig
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		var p http.Protocols
		p.SetHTTP1(version == "HTTP/1.1")
		p.SetHTTP2(version == "HTTP/2.0")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone(), Protocols: &p}}
		resp, err := client.Post("https://"+l.Addr().String(), "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		got, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || string(got) != version {
			t.Errorf("asked by %s, it speaks %s, %v", version, got, err)
		}
		client.CloseIdleConnections()
	}
	conn, err := tls.Dial("tcp", l.Addr().String(), trust)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a length and chunks: %s, want 400", resp.Status)
	}
}
