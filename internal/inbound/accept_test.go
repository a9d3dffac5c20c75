package inbound_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// dialled is a listener with in-memory connections.
type dialled struct {
	conns chan any // the results of Accept, each a net.Conn or an error; unbuffered
	done  chan struct{}
}

func newDialled() *dialled { return &dialled{make(chan any), make(chan struct{})} }

func (d *dialled) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		if err, is := c.(error); is {
			return nil, err
		}
		return c.(net.Conn), nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *dialled) Close() error { close(d.done); return nil }

func (*dialled) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// from is a connection with a remote address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	if f.address == "" {
		return &net.UnixAddr{Name: "@", Net: "unix"}
	}
	return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1234}
}

// dial connects from an address and returns the client's end.
func (d *dialled) dial(address string) net.Conn {
	client, server := net.Pipe()
	d.conns <- from{server, address}
	return client
}

// open reports whether the other end of a connection is open after all goroutines have settled.
func open(c net.Conn) bool {
	synctest.Wait()
	_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func noFiles() error {
	return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// accepted accepts connections until the listener ends.
func accepted(l net.Listener) (conns chan *inbound.Conn, ended chan error) {
	conns, ended = make(chan *inbound.Conn, 1000), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			conns <- c.(*inbound.Conn)
		}
	}()
	return conns, ended
}

// TestAcceptGoesOn checks that errors of the process or of one connection do not end the listener, and that its own
// error does.
func TestAcceptGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		d := newDialled()
		l := inbound.NewListener(d, inbound.Limits{}, slog.New(slog.NewTextHandler(&log, nil)))
		conns, ended := accepted(l)
		oldest, serves := d.dial("10.0.0.1"), d.dial("10.0.0.1")
		<-conns
		(<-conns).Begin()
		begun := time.Now()
		for range 20 {
			d.conns <- noFiles()
		}
		if open(oldest) {
			t.Error("the process has no files, and a connection that asks nothing stays open")
		}
		if !open(serves) {
			t.Error("a connection is ended that is served")
		}
		if took := time.Since(begun); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("20 errors took %s: want pauses of up to a second", took)
		}
		if n := strings.Count(log.String(), "too many open files"); n < 1 || n > 2 {
			t.Errorf("logged %d times in %s:\n%s", n, time.Since(begun), &log)
		}
		d.conns <- &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.ENOBUFS)}
		c := d.dial("10.0.0.2")
		if !open(c) {
			t.Error("it accepts nothing any more")
		}
		broken := errors.New("broken")
		d.conns <- broken
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("it ended with %v", err)
		}
		_, ended = accepted(l)
		d.conns <- noFiles()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestCrowd checks that waiting connections are bounded, by address and in total, and that the oldest are closed.
func TestCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDialled()
		l := inbound.NewListener(d, inbound.Limits{All: 12, Address: 4, Wait: 5 * time.Second}, slog.New(slog.DiscardHandler))
		conns, _ := accepted(l)
		defer l.Close()
		dial := func(address string, n int) (all []net.Conn) {
			for range n {
				all = append(all, d.dial(address))
			}
			return all
		}
		check := func(who string, all []net.Conn, want int) {
			t.Helper()
			n := 0
			for i, c := range all {
				is := open(c)
				if is {
					n++
				}
				if is != (i >= len(all)-want) {
					t.Errorf("%s: connection %d of %d is open: %v, want the last %d", who, i, len(all), is, want)
				}
			}
		}
		one := dial("10.0.0.1", 9)
		check("one address", one, 4)
		six := append(dial("2001:db8::1", 3), dial("2001:db8::2", 3)...)
		check("one network of IPv6", six, 4)
		other := dial("10.0.0.2", 1)
		sockets := dial("", 3) // the twelfth
		check("one address", one, 4)
		honest := dial("10.0.0.3", 1)
		check("who came last", honest, 1)
		if check("no address", sockets, 3); len(conns) != 20 {
			t.Errorf("%d were accepted", len(conns))
		}
		for range 9 + 6 {
			<-conns
		}
		served := <-conns // of 10.0.0.2
		served.Begin()
		served.Begin()
		served.End()
		time.Sleep(time.Minute)
		check("who asks nothing", slices.Concat(one, six, sockets, honest), 0)
		check("who is served", other, 1)
		served.End()
		time.Sleep(4 * time.Second)
		check("who may ask again", other, 1)
		time.Sleep(2 * time.Second)
		check("who asks nothing again", other, 0)
		if _, err := served.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "within 5s") {
			t.Errorf("its end reads %v", err)
		}
	})
}

// TestSilentCrowd checks that silent connections from many addresses, 60 more a second, close none of the fresh
// connections of one address, although that address then has the most.
func TestSilentCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDialled()
		l := inbound.NewListener(d, inbound.Limits{All: 256, Address: 64, Wait: 5 * time.Second}, slog.New(slog.DiscardHandler))
		_, _ = accepted(l)
		defer l.Close()
		crowd := 0
		silent := func(n int) {
			for range n {
				d.dial(fmt.Sprintf("10.0.%d.%d", crowd/250, crowd%250))
				time.Sleep(time.Second / 60)
				crowd++
			}
		}
		silent(400)
		var agents []net.Conn
		for range 30 {
			agents = append(agents, d.dial("192.0.2.1"))
		}
		silent(50)
		for k, c := range agents {
			if !open(c) {
				t.Errorf("the connection of agent %d is closed", k)
			}
		}
	})
}

// TestCrowdAtOnce checks that a connection between two requests outlives a crowd that connects at once, each of it twice.
func TestCrowdAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDialled()
		l := inbound.NewListener(d, inbound.Limits{All: 64}, slog.New(slog.DiscardHandler))
		conns, _ := accepted(l)
		defer l.Close()
		honest := d.dial("192.0.2.1")
		c := <-conns
		c.Begin()
		c.End()
		for n := range 6 {
			time.Sleep(1500 * time.Millisecond)
			for k := range 80 {
				d.dial(fmt.Sprintf("10.0.%d.%d", n, k%40))
			}
			if !open(honest) {
				t.Errorf("it is closed %s after its request", time.Duration(n+1)*1500*time.Millisecond)
			}
		}
	})
}

// TestBound checks that connections without a request are bounded, and that connections with a running request are
// kept.
func TestBound(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols){"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDialled()
				answer := make(chan struct{})
				s := &http.Server{Protocols: inbound.Protocols(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						<-answer
					}
					_, _ = io.WriteString(w, "here")
				})}
				served := make(chan error, 1)
				l := inbound.Guard(s, inbound.Bound(s, d, slog.New(slog.DiscardHandler)), nil)
				go func() { served <- s.Serve(l) }()
				protocols := new(http.Protocols)
				protocol(protocols)
				dials := 0
				client := &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
					dials++
					return d.dial("10.0.0.1"), nil
				}}}
				get := func(path string) string {
					resp, err := client.Get("http://server" + path)
					if err != nil {
						return err.Error()
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					if err != nil {
						return err.Error()
					}
					return string(body)
				}
				slow := make(chan string, 1)
				go func() { slow <- get("/slow") }()
				synctest.Wait()
				var silent []net.Conn
				for range 1200 {
					silent = append(silent, d.dial("10.0.0.1"))
				}
				synctest.Wait()
				n := 0
				for _, c := range silent {
					if open(c) {
						n++
					}
				}
				if n == 0 || n > 1024 {
					t.Errorf("%d of one address are open", n)
				}
				close(answer)
				if got := <-slow; got != "here" {
					t.Errorf("a request that was served meanwhile got %q", got)
				}
				if got := get("/"); got != "here" || dials != 1 {
					t.Errorf("the next one got %q, with %d connections", got, dials)
				}
				for range 1200 { // now the connection waits like the others
					_ = d.dial("10.0.0.1")
				}
				if got := get("/"); got != "here" || dials != 2 {
					t.Errorf("the one after got %q, with %d connections: the idle one was to be closed", got, dials)
				}
				time.Sleep(11 * time.Second)
				for _, c := range silent {
					if open(c) {
						t.Fatal("a connection that says nothing is still open after 11 s")
					}
				}
				client.CloseIdleConnections()
				_ = s.Close()
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// TestResets checks that an address that cancels requests without end loses its connections, and others keep theirs.
func TestResets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDialled()
		began := make(chan struct{})
		s := &http.Server{Protocols: inbound.Protocols(), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				began <- struct{}{}
				<-r.Context().Done()
			}
		})}
		go func() { _ = s.Serve(inbound.Guard(s, inbound.Bound(s, d, slog.New(slog.DiscardHandler)), nil)) }()
		defer s.Close()
		dials := map[string]int{}
		from := func(address string) (get func(path string) error) {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			client := &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
				dials[address]++
				return d.dial(address), nil
			}}}
			t.Cleanup(client.CloseIdleConnections)
			return func(path string) error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if path == "/slow" {
					go func() { <-began; cancel() }()
				}
				resp, err := client.Do(r)
				if err == nil {
					err = resp.Body.Close()
				}
				synctest.Wait()
				return err
			}
		}
		hostile, honest := from("10.0.0.1"), from("10.0.0.2")
		for range 2000 {
			_ = hostile("/slow")
		}
		if err := honest("/slow"); err == nil || dials["10.0.0.1"] != 1 {
			t.Errorf("2,000 cancelled requests took %d connections", dials["10.0.0.1"])
		}
		for range 5 {
			_ = hostile("/slow")
		}
		if n := dials["10.0.0.1"]; n != 5 {
			t.Errorf("5 more took %d connections: want one each, the first included", n)
		}
		for range 10 {
			if err := honest("/"); err != nil {
				t.Error(err)
			}
		}
		if dials["10.0.0.2"] != 1 {
			t.Errorf("another address took %d connections", dials["10.0.0.2"])
		}
		time.Sleep(10 * time.Second)
		for range 100 {
			_ = hostile("/slow")
		}
		if n := dials["10.0.0.1"]; n != 6 {
			t.Errorf("after a while 100 took %d connections, want one", n-5)
		}
	})
}

// TestBoundSlowHeader checks that a client with an unfinished header counts as waiting.
func TestBoundSlowHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDialled()
		s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.NotFoundHandler()}
		go func() { _ = s.Serve(inbound.Bound(s, d, slog.New(slog.DiscardHandler))) }()
		defer s.Close()
		slow := d.dial("10.0.0.1")
		_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\nHost: x\r\n")
		for range 1024 {
			_, _ = io.WriteString(d.dial("10.0.0.1"), "GET / HTTP/1.1\r\nHost: x\r\n")
		}
		if open(slow) {
			t.Error("1,025 headers of one address have not ended, and the oldest connection is open")
		}
		honest := d.dial("10.0.0.1")
		_, _ = io.WriteString(honest, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(honest), nil); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("who is not slow gets %v, %v", resp, err)
		}
	})
}
