package inbound_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// TestGuard sends requests one after another on one connection, whole or byte by byte.
func TestGuard(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: x\r\n"
	const chunked = post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
	const length = post + "Content-Length: 2\r\n\r\n{}"
	for name, tc := range map[string]struct {
		sent []string
		want []int
	}{
		"each":                      {[]string{chunked, length, chunked}, []int{200, 200, 200}},
		"both":                      {[]string{post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, []int{400}},
		"both, the other way round": {[]string{post + "transfer-encoding:chunked\r\ncontent-LENGTH:5\r\n\r\n0\r\n\r\n"}, []int{400}},
		"both, later":               {[]string{chunked, length, post + "Content-Length: 5\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, []int{200, 200, 400}},
		"without returns":           {[]string{"POST / HTTP/1.1\nHost: x\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\r\n\r\n"}, []int{400}},
		"names of others":           {[]string{post + "X-Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, []int{200}},
		"in HTTP/1.0":               {[]string{"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, []int{400}},
		"both in HTTP/1.0":          {[]string{"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"}, []int{400}},
		"in two requests":           {[]string{length, chunked}, []int{200, 200}},
	} {
		for _, slowly := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })}
				go func() { _ = s.Serve(inbound.Guard(s, l, api.WriteErrorTo)) }()
				defer s.Close()
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				for i, want := range tc.want {
					var from io.Reader = strings.NewReader(tc.sent[i])
					if slowly && i+1 == len(tc.want) {
						from = iotest.OneByteReader(from)
					}
					_, err := io.Copy(struct{ io.Writer }{conn}, from)
					if refused := want == 400 && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)); err != nil && !refused { // it is disconnected before it has sent everything
						t.Fatal(err)
					}
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("answer %d: %v", i, err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					if resp.StatusCode != want || (want == 400) != resp.Close {
						t.Errorf("answer %d: %s, closes %t; want %d", i, resp.Status, resp.Close, want)
					}
				}
			})
		}
	}
}

// TestBodiesThatNobodyReads checks that a client that announces a body, and sends none of it or a little at a time,
// is answered if the request needs no body, and is then disconnected.
func TestBodiesThatNobodyReads(t *testing.T) {
	for name, tc := range map[string]struct {
		head, drip string
		answer     int
	}{
		"never sent":        {"Content-Length: 100", "", 1},
		"never, in chunks":  {"Transfer-Encoding: chunked", "", 1},
		"slowly":            {"Content-Length: 100000", "x", 1},
		"slowly, in chunks": {"Transfer-Encoding: chunked", "1\r\nx\r\n", 1},
		"expected":          {"Content-Length: 100\r\nExpect: 100-continue", "", 1},
		"a long answer":     {"Content-Length: 100", "", 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes{make(chan net.Conn), make(chan struct{})}
				s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tc.answer > 1 {
						inbound.Unread(w, r)
					}
					_, _ = io.WriteString(w, strings.Repeat("x", tc.answer))
				})}
				go func() { _ = s.Serve(inbound.Guard(s, p, api.WriteErrorTo)) }()
				defer s.Close()
				began := time.Now()
				conn, server := net.Pipe()
				p.conns <- server
				defer time.Sleep(2 * time.Second) // until the slow client has seen it
				defer conn.Close()
				go func() {
					_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+tc.head+"\r\n\r\n")
					for err == nil && tc.drip != "" {
						time.Sleep(time.Second)
						_, err = io.WriteString(conn, tc.drip)
					}
				}()
				in := bufio.NewReader(conn)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != int64(tc.answer) || err != nil || resp.StatusCode != 200 {
					t.Errorf("got %s and %d bytes, %v", resp.Status, n, err)
				}
				if _, err := io.Copy(io.Discard, in); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it has the connection for %s", took)
				}
			})
		})
	}
}
