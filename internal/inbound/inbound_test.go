package inbound_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

func TestRead(t *testing.T) {
	const limit = 3 << 20
	d := inbound.New(inbound.Config{MaxBody: limit})
	for _, size := range []int{0, 1, 4 << 10, 4<<10 + 1, 16 << 10, 100_000, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, limit} {
		for _, known := range []bool{true, false} {
			want := bytes.Repeat([]byte("x"), size)
			r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(bytes.NewReader(want)))
			r.ContentLength = -1
			if known {
				r.ContentLength = int64(size)
			}
			b, err := d.Read(httptest.NewRecorder(), r, "a")
			if err != nil || !bytes.Equal(b.Bytes(), want) {
				t.Errorf("%d bytes, known %t: got %v", size, known, err)
				continue
			}
			if used := d.Memory().Used(); used < int64(size) || used > 4*int64(size)+64<<10 {
				t.Errorf("%d bytes, known %t: %d are charged", size, known, used)
			}
			b.Release()
		}
	}
	if used := d.Memory().Used(); used != 0 {
		t.Errorf("%d bytes are charged at the end", used)
	}
}

func TestRefused(t *testing.T) {
	d := inbound.New(inbound.Config{MaxBody: 1000})
	for name, tc := range map[string]struct {
		body   io.Reader
		length int64
		status int
	}{
		"promises too much": {strings.NewReader(""), 1001, http.StatusRequestEntityTooLarge},
		"sends too much":    {strings.NewReader(strings.Repeat("x", 1001)), -1, http.StatusRequestEntityTooLarge},
		"ends early":        {io.MultiReader(strings.NewReader("half"), failing{io.ErrUnexpectedEOF}), 100, http.StatusBadRequest},
		"breaks":            {failing{fmt.Errorf("malformed chunked encoding")}, -1, http.StatusBadRequest},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(tc.body))
		r.ContentLength = tc.length
		if _, err := d.Read(httptest.NewRecorder(), r, "a"); err == nil || api.AsError(err).Status != tc.status {
			t.Errorf("%s: got %v, want %d", name, err, tc.status)
		}
	}
	if used := d.Memory().Used(); used != 0 {
		t.Errorf("%d bytes are charged that are gone", used)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestKeptWhileATransportReads releases a body while one of its readers is open.
func TestKeptWhileATransportReads(t *testing.T) {
	d := inbound.New(inbound.Config{})
	read := func(s string) *inbound.Body {
		b, err := d.Read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(s)), "a")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := read("first")
	open := b.Reader()
	b.Release()
	other := read("other") // would get the same memory
	defer other.Release()
	if got, err := io.ReadAll(open); string(got) != "first" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_ = open.Close()
	_ = open.Close()
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a closed reader was read")
	}
}

// pipes is a listener with in-memory connections.
type pipes struct {
	conns chan net.Conn // sent to by dial, received from by Accept
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// client sends a header and then, after each pause, a piece; it returns the status of the answer and its time.
func (p pipes) client(t *testing.T, header string, every time.Duration, pieces int, piece string) (status int, after time.Duration) {
	t.Helper()
	began := time.Now()
	conn, server := net.Pipe()
	p.conns <- server
	defer conn.Close()
	go func() {
		_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n")
		for i := 0; i < pieces && err == nil; i++ {
			time.Sleep(every)
			_, err = io.WriteString(conn, piece)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return 0, time.Since(began)
	}
	defer resp.Body.Close()
	return resp.StatusCode, time.Since(began)
}

// door serves requests by reading and dropping their bodies.
func door(t *testing.T, cfg inbound.Config) (*inbound.Door, pipes) {
	d := inbound.New(cfg)
	p := pipes{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := d.Read(w, r, r.Header.Get("X-Client"))
		if err != nil {
			w.Header().Set("Connection", "close")
			api.WriteError(w, err)
			return
		}
		defer b.Release()
		time.Sleep(time.Minute) // a leftover read deadline would end the request
		if r.Context().Err() != nil {
			t.Error("the client seems to have left")
		}
	})}
	go func() { _ = s.Serve(p) }()
	t.Cleanup(func() { _ = s.Close() })
	return d, p
}

func TestSlowClients(t *testing.T) {
	for name, tc := range map[string]struct {
		header string
		every  time.Duration
		pieces int
		piece  string
		status int
		after  time.Duration // of the answer
	}{
		"nothing of what was promised": {"Content-Length: 1000", 0, 0, "", 408, 10 * time.Second},
		"a byte each second":           {"Content-Length: 1000", time.Second, 1000, "x", 408, 10 * time.Second},
		"a chunk each second":          {"Transfer-Encoding: chunked", time.Second, 1000, "1\r\nx\r\n", 408, 10 * time.Second},
		"a pause that is too long":     {"Content-Length: 200000", 12 * time.Second, 10, strings.Repeat("x", 50000), 408, 10 * time.Second},
		"slow but steady":              {"Content-Length: 65536", 5 * time.Second, 8, strings.Repeat("x", 8192), 200, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := door(t, inbound.Config{})
				status, after := p.client(t, tc.header, tc.every, tc.pieces, tc.piece)
				if status != tc.status || after < tc.after || after > tc.after+3*time.Second {
					t.Errorf("got %d after %s, want %d after %s", status, after, tc.status, tc.after)
				}
				if used := d.Memory().Used(); used != 0 {
					t.Errorf("%d bytes are charged that are gone", used)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestPromisesCostNothing runs a thousand clients that announce 64 MiB each.
func TestPromisesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := door(t, inbound.Config{})
		for range 1000 {
			go p.client(t, "Content-Length: 67108864", 0, 0, "")
		}
		synctest.Wait()
		if used := d.Memory().Used(); used < 1000 || used > 64<<20 {
			t.Errorf("%d bytes are charged for promises", used)
		}
		if status, _ := p.client(t, "Content-Length: 2", 0, 1, "{}"); status != 200 {
			t.Errorf("an honest client gets %d", status)
		}
		time.Sleep(time.Minute)
	})
}

// TestRefusedInMidBody checks that the largest body gives way to a small one, and that its client gets an error.
func TestRefusedInMidBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := door(t, inbound.Config{MaxBody: int64(api.MiB), Memory: 4 * int64(api.MiB)})
		statuses := make(chan int)
		const greedy = 30
		for i := range greedy {
			go func() {
				status, _ := p.client(t, fmt.Sprintf("X-Client: %d\r\nTransfer-Encoding: chunked", i), time.Second, 5, "10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n")
				statuses <- status
			}()
		}
		time.Sleep(5500 * time.Millisecond)
		if used := d.Memory().Used(); used > 4<<20 {
			t.Errorf("%d bytes are charged of 4 MiB", used)
		}
		if status, after := p.client(t, "X-Client: honest\r\nContent-Length: 100000", time.Millisecond, 1, strings.Repeat("x", 100000)); status != 200 || after > time.Minute+time.Second {
			t.Errorf("an honest client gets %d after %s", status, after)
		}
		refused := 0
		for range greedy {
			switch status := <-statuses; status {
			case http.StatusServiceUnavailable:
				refused++
			case http.StatusRequestTimeout:
			default:
				t.Errorf("a greedy client gets %d", status)
			}
		}
		if refused == 0 || refused == greedy {
			t.Errorf("%d of %d were refused, want some", refused, greedy)
		}
		time.Sleep(time.Minute)
	})
}

// TestRefusedOnASharedConnection checks that in HTTP/1.1 the connection ends with the answer to an unread body, and
// that in HTTP/2 it stays open for other streams.
func TestRefusedOnASharedConnection(t *testing.T) {
	d := inbound.New(inbound.Config{MaxBody: 1000})
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := d.Read(w, r, "a client"); err != nil {
			api.WriteErrorTo(w, r, err)
		}
	}))
	server.Config.Protocols = inbound.Protocols()
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for major, want := range map[int]int32{1: 3, 2: 1} {
		var protocols http.Protocols
		protocols.SetHTTP1(major == 1)
		protocols.SetUnencryptedHTTP2(major == 2)
		transport := &http.Transport{Protocols: &protocols}
		opened.Store(0)
		for range 3 {
			resp, err := (&http.Client{Transport: transport}).Post(server.URL, "application/json", strings.NewReader(strings.Repeat("x", 100_000)))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.ProtoMajor != major || resp.StatusCode != http.StatusRequestEntityTooLarge || !bytes.Contains(body, []byte("body_too_large")) {
				t.Errorf("%s %s, %v: %s; want 413 over HTTP/%d", resp.Proto, resp.Status, err, body, major)
			}
		}
		transport.CloseIdleConnections()
		if got := opened.Load(); got != want {
			t.Errorf("three requests over HTTP/%d had %d connections, want %d", major, got, want)
		}
	}
}

// TestSharedBody checks that a request within the process shares the body without a copy, and that the memory is
// charged until the last user has released it.
func TestSharedBody(t *testing.T) {
	door, inner := inbound.New(inbound.Config{}), inbound.New(inbound.Config{MaxBody: 100})
	read := func(d *inbound.Door, body io.ReadCloser, size int) (*inbound.Body, *http.Request) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Body, r.ContentLength = body, int64(size)
		b, err := d.Read(httptest.NewRecorder(), r, "client")
		if err != nil {
			t.Fatal(err)
		}
		return b, r
	}
	const text = `{"model":"a","x":1}`
	outer, _ := read(door, io.NopCloser(strings.NewReader(text)), len(text))
	outer.Object()
	shared, r := read(inner, outer.Reader(), len(text))
	if &shared.Bytes()[0] != &outer.Bytes()[0] || r.Body != http.NoBody {
		t.Error("the body was copied")
	}
	shared.Object().Set("model", []byte(`"b"`))
	if got := string(shared.Object().Bytes()); got != `{"model":"b","x":1}` || outer.Object().Changed() {
		t.Errorf("the copy is %s, the body %s", got, outer.Object().Bytes())
	}
	again, _ := read(inner, shared.Reader(), len(text))
	begun := shared.Reader()
	_, _ = begun.Read(make([]byte, 1))
	rest, _ := read(inner, begun, len(text)-1)
	if string(rest.Bytes()) != text[1:] {
		t.Errorf("of a body that was begun %q is read", rest.Bytes())
	}
	rest.Release()
	outer.Release()
	shared.Release()
	if got := string(again.Bytes()); got != text || door.Memory().Used() == 0 {
		t.Errorf("the body is %q while it is used, and %d bytes are charged", got, door.Memory().Used())
	}
	again.Release()
	_ = begun.Close()
	if a, b := door.Memory().Used(), inner.Memory().Used(); a != 0 || b != 0 {
		t.Errorf("%d and %d bytes stay charged", a, b)
	}
	r = httptest.NewRequest(http.MethodPost, "/", nil)
	large, _ := read(door, io.NopCloser(strings.NewReader(strings.Repeat("x", 101))), 101)
	defer large.Release()
	r.Body, r.ContentLength = large.Reader(), 101
	if _, err := inner.Read(httptest.NewRecorder(), r, "client"); err == nil {
		t.Error("a body larger than the limit is taken")
	}
}
