package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// kept bounds what is kept of an answer: of a longer one nothing is judged but what came first.
const kept = 4 << 20

// tap passes connections on to a server, byte by byte, and tells of the answers.
type tap struct {
	listener net.Listener
	server   string
	tell     func(httpExchange)

	all sync.WaitGroup // connections

	mu   sync.Mutex // guards what follows
	open map[net.Conn]bool
	shut bool
}

// newTap listens on a free port of the loopback for connections to a server. tell is called for each answer when it has ended, from
// many goroutines. [tap.Close] ends it.
func newTap(server string, tell func(httpExchange)) (*tap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{listener: l, server: server, tell: tell, open: map[net.Conn]bool{}}
	t.all.Go(t.accept)
	return t, nil
}

// Addr is where clients connect.
func (t *tap) Addr() string { return t.listener.Addr().String() }

// Close ends all connections and waits until all that ended in time is told.
func (t *tap) Close() {
	_ = t.listener.Close()
	t.mu.Lock()
	t.shut = true
	for c := range t.open {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.all.Wait()
}

func (t *tap) accept() {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			return
		}
		t.all.Go(func() { t.pass(c) })
	}
}

// keep remembers a connection for Close; false: it is too late.
func (t *tap) keep(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.shut {
		t.open[c] = true
	}
	return !t.shut
}

func (t *tap) drop(c net.Conn) {
	_ = c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}

// pass passes one connection on. A server that can't be reached is a connection that ends.
func (t *tap) pass(client net.Conn) {
	defer t.drop(client)
	if !t.keep(client) {
		return
	}
	server, err := net.DialTimeout("tcp", t.server, time.Minute)
	if err != nil {
		resetConn(client)
		return
	}
	defer t.drop(server)
	if !t.keep(server) {
		return
	}
	asked, answered := newEar(), newEar()
	requests := make(chan *http.Request, 64) // from the reader of requests, which closes it; as many as may be pipelined
	var both sync.WaitGroup
	both.Go(func() { hearRequests(asked, requests) })
	both.Go(func() { t.hearAnswers(answered, requests) })
	both.Go(func() { copyAll(server, client, asked) })
	both.Go(func() { copyAll(client, server, answered) })
	both.Wait()
}

// copyAll copies until one side ends, and ends the other likewise: an end as an end, all else as a reset.
func copyAll(to, from net.Conn, ear *ear) {
	_, err := io.Copy(io.MultiWriter(to, ear), from)
	ear.close()
	if err != nil {
		resetConn(to)
		resetConn(from)
		return
	}
	if c, is := to.(*net.TCPConn); is {
		_ = c.CloseWrite()
	}
}

func resetConn(c net.Conn) {
	if tcp, is := c.(*net.TCPConn); is {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// ear hands a copy of what passes to a reader. It never makes who speaks wait for a reader that has gone.
type ear struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newEar() *ear {
	r, w := io.Pipe()
	return &ear{r, w}
}

// Write implements [io.Writer]; it never fails.
func (e *ear) Write(p []byte) (int, error) {
	_, _ = e.w.Write(p) // fails when the reader has gone
	return len(p), nil
}

func (e *ear) close() { _ = e.w.Close() }

// deaf ends the reading.
func (e *ear) deaf() { _ = e.r.Close() }

// hearRequests reads what a client sends.
func hearRequests(ear *ear, requests chan<- *http.Request) {
	defer ear.deaf()
	defer close(requests)
	r := bufio.NewReader(ear.r)
	for {
		request, err := http.ReadRequest(r)
		if err != nil || request.Method == "PRI" { // HTTP/2 is not read
			return
		}
		select {
		case requests <- request:
		default: // more than anybody pipelines
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
	}
}

// hearAnswers reads what the server answers. An answer that nobody asked for ends it: then the requests can't be read.
func (t *tap) hearAnswers(ear *ear, requests <-chan *http.Request) {
	defer ear.deaf()
	r := bufio.NewReader(ear.r)
	for request := range requests {
		if _, err := r.Peek(1); err != nil {
			return
		}
		x, more := hearAnswer(r, request)
		if x != nil {
			t.tell(*x)
		}
		if !more {
			return
		}
	}
}

// hearAnswer reads the answer to a request; nil: there is none to tell of. more says whether others may follow.
func hearAnswer(r *bufio.Reader, request *http.Request) (x *httpExchange, more bool) {
	answer, err := http.ReadResponse(r, request)
	if err != nil {
		return nil, false
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols:
		return nil, false
	case answer.StatusCode < http.StatusOK: // the answer comes behind it
		return hearAnswer(r, request)
	}
	body, cut := io.ReadAll(io.LimitReader(answer.Body, kept))
	rest, late := io.Copy(io.Discard, answer.Body)
	whole := cut == nil && late == nil
	return &httpExchange{
		Method: request.Method, Path: request.URL.Path, Status: answer.StatusCode, Header: answer.Header,
		Body: body, Whole: whole && rest == 0 && answer.Header.Get("Content-Encoding") == "",
	}, whole
}
