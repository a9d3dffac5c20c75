package protocol_test

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
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/internal/relay"
)

// pair is a link over TCP connections.
type pair struct {
	pool   *protocol.Pool
	server *protocol.LinkServer
	stop   context.CancelFunc // ends the server's dialling

	mu    sync.Mutex // guards the fields below
	front []net.Conn // the front door's ends of all connections, ended ones included
	open  int
}

var hello = protocol.LinkHello{Agent: "a", Session: "s", Secret: "x"}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dialled returns both ends of a connection.
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

// connect returns a link with one connection.
func connect(t testing.TB, h http.HandlerFunc) *pair {
	t.Helper()
	l := listen(t)
	p := &pair{}
	p.pool = protocol.NewPool(func(net.Conn) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open--
	})
	p.server = protocol.NewLinkServer(hello, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}, func() {}, h)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			_ = protocol.AcceptLink(t.Context(), front, func(h protocol.LinkHello) (*protocol.Pool, error) {
				if h != hello {
					t.Errorf("another: %+v", h)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.front = append(p.front, front)
				p.open++
				return p.pool, nil
			})
		}
	})
	first, err := p.server.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	served := make(chan struct{})
	go func() { defer close(served); p.server.Serve(ctx, first) }()
	t.Cleanup(func() {
		stop()
		_ = p.server.Close()
		<-served
		_ = l.Close()
		accepting.Wait()
		p.pool.Retire()
	})
	return p
}

func (p *pair) do(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://any"+path, body)
	if err != nil {
		return nil, err
	}
	return p.pool.RoundTrip(r)
}

// ask sends a request and reads the whole answer.
func (p *pair) ask(ctx context.Context, path string, body io.Reader) (string, error) {
	resp, err := p.do(ctx, path, body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return string(got), err
}

// until waits until the given number of connections is open, and returns how many there have been.
func (p *pair) until(t *testing.T, open int) (all int) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // there is no event for it
		p.mu.Lock()
		now, all := p.open, len(p.front)
		p.mu.Unlock()
		if now == open {
			return all
		}
		if time.Now().After(late) {
			t.Fatalf("%d connections are open, want %d", now, open)
		}
	}
}

// TestAsItCame checks that bodies, headers and trailers arrive unchanged in both directions.
func TestAsItCame(t *testing.T) {
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
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
	resp, err := p.pool.RoundTrip(r)
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

// TestUnread checks that the answer to a large unread request arrives.
func TestUnread(t *testing.T) {
	p := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no place is free", http.StatusServiceUnavailable)
	})
	for _, size := range []int{10, 200 << 10, 16 << 20} {
		got, err := p.ask(t.Context(), "/", bytes.NewReader(make([]byte, size)))
		if got != "no place is free\n" || err != nil {
			t.Errorf("a body of %d bytes: %q, %v", size, got, err)
		}
	}
}

// TestCancel checks that a cancelled request ends its handler's context, and no other request.
func TestCancel(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
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

// TestSlowReader checks that a client that stops reading blocks only its own writer and loses nothing.
func TestSlowReader(t *testing.T) {
	const size = 32 << 20
	wrote := make(chan int, 1)
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
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

// TestManyStreams opens thousands of streams at once and checks that each gets its own answer.
func TestManyStreams(t *testing.T) {
	const many = 2000
	var all sync.WaitGroup
	all.Add(many)
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		all.Done()
		all.Wait() // all of them are open
		fmt.Fprint(w, r.URL.Path)
	})
	p.server.Keep(many)
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

// TestCut checks that a link cut in the middle of an answer is never taken for its end.
func TestCut(t *testing.T) {
	t.Parallel() // it waits for a connection that does not come
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
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
	p.until(t, 3)
	p.stop() // no further dials
	p.mu.Lock()
	for _, front := range p.front {
		_ = front.Close()
	}
	p.mu.Unlock()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer ended without an error")
	}
	if resp, err := p.do(t.Context(), "/", http.NoBody); err == nil || !relay.Unreachable(err) {
		t.Errorf("a request on connections that have ended: %v, %v, want an error that says that nobody has seen it", resp, err)
	}
}

// TestShutdown checks that an ending agent answers running requests and accepts no new ones.
func TestShutdown(t *testing.T) {
	finish := make(chan struct{})
	p := connect(t, func(w http.ResponseWriter, _ *http.Request) {
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
	p.pool.Retire() // as the front door does on the agent's announcement
	if late, err := p.do(t.Context(), "/", http.NoBody); err == nil || !relay.Unreachable(err) {
		t.Errorf("a request after that: %v, %v, want an error that says that nobody has seen it", late, err)
	}
	close(finish)
	if got, err := io.ReadAll(resp.Body); string(got) != "to the end" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDials checks that the number of idle connections follows the free places, within limits, and that connections
// are reused.
func TestDials(t *testing.T) {
	finish := make(chan struct{})
	p := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if r.URL.Path == "/long" {
			<-finish
		}
	})
	for range 50 {
		if _, err := p.ask(t.Context(), "/", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	p.server.Keep(4)
	if all := p.until(t, 4); all != 4 {
		t.Errorf("50 requests, one after another, took %d connections, want 4 at most", all)
	}
	var running []*http.Response
	for n, open := range []int{4, 4, 5, 6, 7} { // at least two are idle
		resp, err := p.do(t.Context(), "/long", http.NoBody)
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		running = append(running, resp)
		p.until(t, open)
	}
	p.server.Keep(1000)
	p.until(t, len(running)+protocol.MaxIdle)
	close(finish)
	for _, resp := range running {
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	}
	p.until(t, protocol.MaxIdle)
}

// TestTooMany checks that connections beyond the limit are closed.
func TestTooMany(t *testing.T) {
	ended := make(chan struct{}, 2*protocol.MaxIdle)
	p := protocol.NewPool(func(net.Conn) { ended <- struct{}{} })
	refused := 0
	for range protocol.MaxIdle + 10 {
		agent, front := dialled(t)
		_, _ = io.WriteString(agent, "\x00\x02{}")
		if protocol.AcceptLink(t.Context(), front, func(protocol.LinkHello) (*protocol.Pool, error) { return p, nil }) != nil {
			refused++
			if _, err := agent.Read(make([]byte, 1)); err == nil {
				t.Error("the connection is still open")
			}
		}
	}
	if refused != 10 || len(ended) != 10 {
		t.Errorf("%d were refused, and %d ended, want 10", refused, len(ended))
	}
	p.Retire()
	if len(ended) != protocol.MaxIdle+10 {
		t.Errorf("%d have ended, want all", len(ended))
	}
}

// TestDied checks that after an agent died silently one connection fails and the others are not tried.
func TestDied(t *testing.T) {
	var frontEnds, agentEnds []net.Conn
	p := protocol.NewPool(func(net.Conn) {})
	for range 5 {
		agent, front := dialled(t)
		_, _ = io.WriteString(agent, "\x00\x02{}")
		if err := protocol.AcceptLink(t.Context(), front, func(protocol.LinkHello) (*protocol.Pool, error) { return p, nil }); err != nil {
			t.Fatal(err)
		}
		frontEnds, agentEnds = append(frontEnds, front), append(agentEnds, agent)
	}
	go func() { // the last is taken first
		_, _ = agentEnds[4].Read(make([]byte, 1))
		_ = agentEnds[4].Close()
	}()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any/", http.NoBody)
	if _, err := p.RoundTrip(r); err == nil || relay.Unreachable(err) {
		t.Errorf("%v, want an error that does not say that nobody has seen the request", err)
	}
	for _, front := range frontEnds {
		if _, err := front.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("another connection: %v, want it closed", err)
		}
	}
	p.Retire()
}

// TestPause checks that failing connections are not redialled in a tight loop, and that the session is lost if no
// other connection is left.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards dials
		dials := 0
		lost := make(chan struct{})
		s := protocol.NewLinkServer(hello, func(context.Context) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if dials++; dials%2 == 0 {
				return nil, errors.New("refused")
			}
			agent, front := net.Pipe()
			go func() { _, _ = io.CopyN(io.Discard, front, 3); _ = front.Close() }()
			return agent, nil
		}, sync.OnceFunc(func() { close(lost) }), http.NotFoundHandler())
		agent, front := net.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() { defer close(served); s.Serve(ctx, agent) }()
		time.Sleep(5 * time.Second)
		select {
		case <-lost:
			t.Error("the session is lost though a connection is idle")
		default:
		}
		_ = front.Close() // the idle one
		<-lost
		time.Sleep(5 * time.Second)
		mu.Lock()
		if dials < 10 || dials > 40 {
			t.Errorf("%d dials in 10 s, want a pause of up to a second before each", dials)
		}
		mu.Unlock()
		stop()
		_ = s.Close()
		_ = front.Close()
		<-served
		time.Sleep(2 * time.Second)
	})
}

// TestWaits checks that a request waits for an idle connection.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := protocol.NewPool(func(net.Conn) {})
		defer p.Retire()
		begun := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any/", http.NoBody)
		if _, err := p.RoundTrip(r); err == nil || !relay.Unreachable(err) || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %s, want an error after 5 s that says that nobody has seen it", err, time.Since(begun))
		}
		agent, front := net.Pipe()
		s := protocol.NewLinkServer(hello, func(context.Context) (net.Conn, error) { return agent, nil }, func() {}, http.NotFoundHandler())
		go func() {
			time.Sleep(500 * time.Millisecond)
			first, err := s.Dial(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			ctx, stop := context.WithCancel(t.Context())
			stop() // no further dials
			s.Serve(ctx, first)
		}()
		go func() {
			_ = protocol.AcceptLink(t.Context(), front, func(protocol.LinkHello) (*protocol.Pool, error) { return p, nil })
		}()
		resp, err := p.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Fatal(resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		_ = s.Close()
	})
}

// TestBadHello checks that a connection with an invalid first message is closed with an error.
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
			if err := protocol.AcceptLink(t.Context(), front, func(protocol.LinkHello) (*protocol.Pool, error) { return nil, errors.New("nobody knows it") }); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
			if _, err := agent.Read(make([]byte, 1)); err == nil {
				t.Error("the connection is still open")
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		_, front := dialled(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := protocol.AcceptLink(ctx, front, nil); err == nil {
			t.Error("no error")
		}
	})
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
	p := connect(b, handler)
	b.Run("one/direct", func(b *testing.B) { run(b, direct, "http://"+l.Addr().String(), true) })
	b.Run("one/link", func(b *testing.B) { run(b, p.pool, "http://any/", true) })
	b.Run("32/direct", func(b *testing.B) { run(b, direct, "http://"+l.Addr().String(), false) })
	b.Run("32/link", func(b *testing.B) { run(b, p.pool, "http://any/", false) })
}
