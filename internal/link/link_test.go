package link_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/link"
)

// pair is a link over a connection of TCP.
type pair struct {
	link   *link.Link
	server *link.Server
	served chan error
	front  net.Conn // the front door's end
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dialled is both ends of a connection.
func dialled(t testing.TB) (agent, front net.Conn) {
	t.Helper()
	l := listen(t)
	agent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if front, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = agent.Close(), front.Close() })
	return agent, front
}

func connect(t testing.TB, cfg link.Config, h http.HandlerFunc) *pair {
	t.Helper()
	agent, front := dialled(t)
	p := &pair{server: link.NewServer(link.Hello{Agent: "a", Session: "s", Secret: "x"}, h, cfg), served: make(chan error, 1), front: front}
	go func() { p.served <- p.server.Serve(agent) }()
	var err error
	if p.link, err = link.Accept(t.Context(), front, cfg, func(h link.Hello) error {
		if h != (link.Hello{Agent: "a", Session: "s", Secret: "x"}) {
			return fmt.Errorf("another: %+v", h)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.link.Close(); <-p.served })
	return p
}

func (p *pair) do(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://any"+path, body)
	if err != nil {
		return nil, err
	}
	return p.link.RoundTrip(r)
}

// TestAsItCame: bodies, headers and trailers of both directions arrive as they were sent.
func TestAsItCame(t *testing.T) {
	p := connect(t, link.Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Got", r.Header.Get("X-Unknown")+" "+r.URL.String()+" "+r.Host)
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(http.StatusAccepted)
		n, _ := io.Copy(w, r.Body)
		w.Header().Set("X-End", fmt.Sprint(n, r.Trailer.Get("X-Last")))
	})
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/a%2Fb?q=1&q", io.NopCloser(bytes.NewReader(sent)))
	r.Header.Set("X-Unknown", "as it came")
	r.Trailer = http.Header{"X-Last": {"behind it"}}
	resp, err := p.link.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes, %v, want the %d that were sent", len(got), err, len(sent))
	}
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("X-Got") != "as it came /a%2Fb?q=1&q host.example" || resp.Trailer.Get("X-End") != fmt.Sprint(len(sent), "behind it") {
		t.Errorf("%s %v, trailer %v", resp.Status, resp.Header, resp.Trailer)
	}
}

// TestCancel: who gives up ends the handler's context, and nobody else's request.
func TestCancel(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	p := connect(t, link.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			fmt.Fprint(w, "answered")
			return
		}
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := p.do(ctx, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-begun
	cancel()
	<-ended
	other, err := p.do(t.Context(), "/other", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	if got, err := io.ReadAll(other.Body); string(got) != "answered" || err != nil {
		t.Errorf("another request: %q, %v", got, err)
	}
}

// TestSlowReader: one who reads nothing has the writer wait, and loses nothing; others go on meanwhile.
func TestSlowReader(t *testing.T) {
	const size = 8 << 20
	wrote := make(chan int, 1)
	p := connect(t, link.Config{Window: 64 << 10}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			fmt.Fprint(w, "answered")
			return
		}
		n, _ := w.Write(bytes.Repeat([]byte("x"), size))
		wrote <- n
	})
	slow, err := p.do(t.Context(), "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	for range 100 {
		other, err := p.do(t.Context(), "/other", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(other.Body); string(got) != "answered" || err != nil {
			t.Fatalf("another request: %q, %v", got, err)
		}
		_ = other.Body.Close()
	}
	if len(wrote) != 0 {
		t.Error("the writer did not wait for the reader")
	}
	if n, err := io.Copy(io.Discard, slow.Body); n != size || err != nil {
		t.Errorf("the slow reader got %d bytes, %v, want %d", n, err, size)
	}
	<-wrote
}

// TestManyStreams: thousands are open at once, and each gets its own answer.
func TestManyStreams(t *testing.T) {
	const many = 2000
	var all sync.WaitGroup
	all.Add(many)
	p := connect(t, link.Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		all.Done()
		all.Wait() // every one of them is open
		fmt.Fprint(w, r.URL.Path)
	})
	var done sync.WaitGroup
	for n := range many {
		done.Go(func() {
			path := fmt.Sprintf("/%d", n)
			resp, err := p.do(t.Context(), path, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); string(got) != path || err != nil {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		})
	}
	done.Wait()
}

// TestCut: a link that is cut in the middle of an answer never looks like its end.
func TestCut(t *testing.T) {
	p := connect(t, link.Config{}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begun")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	resp, err := p.do(t.Context(), "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = p.front.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer ended without an error")
	}
	<-p.link.Done()
	if p.link.Taking() {
		t.Error("a link that has ended takes requests")
	}
	if resp, err := p.do(t.Context(), "/", http.NoBody); err == nil {
		_ = resp.Body.Close()
		t.Error("a request was sent on a link that has ended")
	}
}

// TestShutdown: an agent that ends answers what runs, and takes nothing new.
func TestShutdown(t *testing.T) {
	finish := make(chan struct{})
	p := connect(t, link.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-finish
		fmt.Fprint(w, "to the end")
	})
	resp, err := p.do(t.Context(), "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.server.Shutdown(t.Context()) }()
	for p.link.Taking() {
		time.Sleep(time.Millisecond) // the link has no event for it
	}
	if late, err := p.do(t.Context(), "/", http.NoBody); err == nil {
		_ = late.Body.Close()
		t.Error("a request was taken after the go-away")
	}
	close(finish)
	if got, err := io.ReadAll(resp.Body); string(got) != "to the end" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDeadPeer: a peer that answers nothing, on a connection that nobody closes, is dead in bounded time, at both ends.
func TestDeadPeer(t *testing.T) {
	cfg := link.Config{PingAfter: 20 * time.Millisecond, PingTimeout: 20 * time.Millisecond}
	agent, front := dialled(t)
	s := link.NewServer(link.Hello{Agent: "a"}, http.NotFoundHandler(), cfg)
	served := make(chan error, 1)
	silent := &deaf{Conn: agent}
	go func() { served <- s.Serve(silent) }()
	l, err := link.Accept(t.Context(), front, cfg, func(link.Hello) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any/", http.NoBody)
	resp, err := l.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	silent.mute()
	<-l.Done()
	_ = agent.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// deaf is a connection whose other end hears nothing any more once it is mute.
type deaf struct {
	net.Conn
	mu    sync.Mutex
	muted bool
}

func (d *deaf) mute() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.muted = true
}

func (d *deaf) Write(p []byte) (int, error) {
	d.mu.Lock()
	muted := d.muted
	d.mu.Unlock()
	if muted {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// TestBadHello: what does not begin as a link begins is closed, and says why.
func TestBadHello(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"nothing":       {"", "EOF"},
		"cut":           {"\x00\x20{", "unexpected EOF"},
		"too long":      {"\xff\xff{", "65535 bytes: want at most 4096"},
		"another field": {"\x00\x0a{\"time\":1}", `unknown field "time"`},
		"HTTP":          {"GET / HTTP/1.1\r\n\r\n", "18245 bytes"},
		"not wanted":    {"\x00\x02{}", "nobody knows it"},
	} {
		t.Run(name, func(t *testing.T) {
			agent, front := dialled(t)
			_, _ = io.Copy(agent, strings.NewReader(c.sent))
			_ = agent.(*net.TCPConn).CloseWrite()
			if _, err := link.Accept(t.Context(), front, link.Config{}, func(link.Hello) error { return errors.New("nobody knows it") }); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
			if _, err := agent.Read(make([]byte, 1)); err == nil {
				t.Error("the connection is still open")
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		_, front := dialled(t)
		if _, err := link.Accept(t.Context(), front, link.Config{HelloTimeout: time.Millisecond}, nil); err == nil {
			t.Error("no error")
		}
	})
}

func TestValidate(t *testing.T) {
	if err := (link.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]link.Config{
		"times": {PingAfter: -1}, "at once": {Streams: -1}, "window": {Window: 8 << 20}, "headers": {MaxHeader: 1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %s", c, err, want)
		}
	}
}

// BenchmarkRequests compares requests over a link with requests sent directly.
func BenchmarkRequests(b *testing.B) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 1024))
	}
	body := make([]byte, 1024)
	run := func(b *testing.B, t http.RoundTripper, url string, once bool) {
		one := func() {
			r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
			resp, err := t.RoundTrip(r)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if once {
			for b.Loop() {
				one()
			}
			return
		}
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				one()
			}
		})
	}
	l := listen(b)
	s := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	direct := &http.Transport{MaxIdleConnsPerHost: 64}
	p := connect(b, link.Config{}, handler)
	b.Run("one/direct", func(b *testing.B) { run(b, direct, "http://"+l.Addr().String(), true) })
	b.Run("one/link", func(b *testing.B) { run(b, p.link, "http://any/", true) })
	b.Run("32/direct", func(b *testing.B) { run(b, direct, "http://"+l.Addr().String(), false) })
	b.Run("32/link", func(b *testing.B) { run(b, p.link, "http://any/", false) })
}
