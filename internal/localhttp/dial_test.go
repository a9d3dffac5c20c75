package localhttp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

// TestLoopback checks that a loopback server that does not name requests gets a connection per request, and that data
// arrives whole in both directions.
func TestLoopback(t *testing.T) {
	opened := make(chan struct{}, 8)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	transport := localhttp.New(4, time.Minute)
	defer transport.CloseIdleConnections()
	for n, size := range []int{1, 200 << 10} {
		body := bytes.Repeat([]byte("x"), size)
		req, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, body) || len(opened) != n+1 {
			t.Errorf("%d bytes came back of %d, %v, over %d connections", len(got), size, err, len(opened))
		}
	}
}

// TestNobodyListens checks that a closed port is always reported as a dial error.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	transport := localhttp.New(4, time.Minute)
	for range 100 {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		var dial *net.OpError
		if err == nil || !errors.As(err, &dial) || dial.Op != "dial" || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("got %v, %v; want a dial that is refused", resp, err)
		}
	}
}
