package hop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Sizes of a connection's buffers.
const (
	readSize  = 8 << 10
	writeSize = 8 << 10
)

// peer is a server's connection. All but what mu guards is its goroutine's own.
type peer struct {
	server *Server
	net    net.Conn
	raw    syscall.RawConn // nil: the kernel can't be asked
	remote string
	limit  *limited
	in     *bufio.Reader
	out    *bufio.Writer

	mu      sync.Mutex // guards what follows; taken after the server's
	stage   stage
	since   time.Time          // when stage began
	cancel  context.CancelFunc // of the request that runs
	body    *inbound           // its body
	watched chan struct{}      // closed by the watch at its end; nil: none
}

// stage is where a connection is.
type stage int

const (
	fresh   stage = iota // no byte has come yet
	idle                 // it waits for a further request
	busy                 // a request is read or answered
	refused              // it was closed: a request that comes now is not answered
)

// limited bounds what is read of a header.
type limited struct {
	net net.Conn
	n   int64
}

// errLarge is a header that is too large.
var errLarge = errors.New("the header is too large")

func (l *limited) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, errLarge
	}
	if int64(len(p)) > l.n {
		p = p[:l.n]
	}
	n, err := l.net.Read(p)
	l.n -= int64(n)
	return n, err
}

func makePeer(s *Server, nc net.Conn) *peer {
	p := &peer{server: s, net: nc, remote: nc.RemoteAddr().String(), limit: &limited{net: nc}, since: time.Now()}
	p.in, p.out = bufio.NewReaderSize(p.limit, readSize), bufio.NewWriterSize(nc, writeSize)
	if c, ok := nc.(syscall.Conn); ok {
		p.raw, _ = c.SyscallConn() // nil for one that is closed: the first read says so
	}
	return p
}

// serve answers requests until the connection ends.
func (p *peer) serve() {
	defer p.server.leave(p)
	defer p.net.Close()
	for {
		r, err := p.next()
		if err != nil {
			p.refuse(err)
			return
		}
		if r == nil || !p.answer(r) {
			return
		}
		if !p.rest() {
			return
		}
	}
}

// next waits for a request and reads its header. A nil request is the end.
func (p *peer) next() (*http.Request, error) {
	p.limit.n = int64(p.server.MaxHeaderBytes) + readSize // what is read ahead may be of the body
	if _, err := p.in.Peek(1); err != nil || !p.rouse() {
		return nil, nil
	}
	slow := !wholeHead(p.in)
	if slow {
		_ = p.net.SetReadDeadline(time.Now().Add(p.server.HeaderTimeout)) // fails for a connection that is closed: so does the read
	} else if twoHosts(p.in) {
		return nil, status(http.StatusBadRequest)
	}
	r, err := http.ReadRequest(p.in)
	if slow {
		_ = p.net.SetReadDeadline(time.Time{})
	}
	p.limit.n = math.MaxInt64
	if err != nil {
		return nil, headError(err)
	}
	return r, check(r)
}

// rouse says that a request comes; false: the connection was closed meanwhile.
func (p *peer) rouse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == refused {
		return false
	}
	p.stage, p.since = busy, time.Now()
	return true
}

// rest says that the connection waits again; false: it is to end.
func (p *peer) rest() bool {
	if p.server.isEnding() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.since = idle, time.Now()
	return true
}

// endIfIdle closes the connection if it carries no request.
func (p *peer) endIfIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == fresh || p.stage == idle {
		p.stage = refused
		_ = p.net.Close()
	}
}

// look is what the sweep does with a connection; true: a request runs.
func (p *peer) look(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := now.Sub(p.since)
	switch {
	case p.stage == busy:
		if p.cancel != nil && p.watched == nil && p.raw != nil && age >= watchAfter && p.body.done.Load() {
			p.watched = make(chan struct{})
			go p.watch(p.cancel, p.watched)
		}
		return true
	case p.stage == fresh && age >= p.server.HeaderTimeout, p.stage == idle && age >= p.server.IdleTimeout:
		p.stage = refused
		_ = p.net.Close()
	}
	return false
}

// answer has the handler answer a request; false: the connection is to end.
func (p *peer) answer(r *http.Request) (again bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body := &inbound{ReadCloser: r.Body, peer: p}
	body.done.Store(r.Body == http.NoBody)
	body.ask = r.Body != http.NoBody && r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	r = r.WithContext(ctx)
	r.RemoteAddr = p.remote
	if r.Body != http.NoBody {
		r.Body = body
	}
	w := &response{peer: p, request: r, body: body, cancel: cancel, length: -1, header: http.Header{}}
	p.mu.Lock()
	p.cancel, p.body = cancel, body
	p.mu.Unlock()
	p.server.hurry()
	defer func() {
		p.unwatch()
		if what := recover(); what != nil {
			if what != http.ErrAbortHandler {
				p.server.Logger.Error("a handler panics", "path", r.URL.Path, "panic", what, "stack", string(debug.Stack()))
			}
			_ = p.out.Flush() // the client gets what was written, and an end that it can tell from a good one
			again = false
		}
	}()
	p.server.Handler.ServeHTTP(w, r)
	w.finish()
	return !w.last && w.err == nil
}

// unwatch ends the watch, if there is one, and says that nothing runs.
func (p *peer) unwatch() {
	p.mu.Lock()
	watched := p.watched
	p.cancel, p.body, p.watched = nil, nil, nil
	p.mu.Unlock()
	if watched != nil {
		_ = p.net.SetReadDeadline(time.Unix(1, 0)) // wakes the watch; if it fails the connection is closed, which does too
		<-watched
		_ = p.net.SetReadDeadline(time.Time{})
	}
}

// inbound is a request's body.
type inbound struct {
	io.ReadCloser
	peer *peer
	done doneFlag // it was read to its end
	ask  bool     // the client waits to be asked for it
	bad  bool     // it could not be read
}

// Read asks for the body first, where the client wants that.
func (b *inbound) Read(p []byte) (int, error) {
	if b.ask {
		b.ask = false
		if _, err := io.WriteString(b.peer.net, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.done.Store(true)
	} else if err != nil {
		b.bad = true
	}
	return n, err
}

// status is a refusal of something that is no proper request.
type status int

func (s status) Error() string { return fmt.Sprintf("%d %s", int(s), http.StatusText(int(s))) }

// headError turns an error of reading a header into a refusal; an error that is
// none says that there is nobody to refuse.
func headError(err error) error {
	var failed *net.OpError
	switch {
	case errors.Is(err, errLarge):
		return status(http.StatusRequestHeaderFieldsTooLarge)
	case errors.As(err, &failed), errors.Is(err, io.EOF):
		return err
	case strings.HasPrefix(err.Error(), "unsupported transfer encoding"): // net/http has no other sign
		return status(http.StatusNotImplemented)
	}
	return status(http.StatusBadRequest)
}

// check refuses what can be read and is no proper request.
func check(r *http.Request) error {
	switch {
	case r.ProtoMajor != 1:
		return status(http.StatusHTTPVersionNotSupported)
	case r.Host == "" && r.ProtoAtLeast(1, 1), unsafe(r.Host), strings.ContainsAny(r.Host, " /\\?#@<>\"{}|^`"):
		return status(http.StatusBadRequest)
	case r.Header["Expect"] != nil && !strings.EqualFold(r.Header.Get("Expect"), "100-continue"):
		return status(http.StatusExpectationFailed)
	}
	for name, values := range r.Header {
		if !token(name) {
			return status(http.StatusBadRequest)
		}
		for _, v := range values {
			if unsafe(v) {
				return status(http.StatusBadRequest)
			}
		}
	}
	return nil
}

// refuse answers what is no proper request and lets the client read the answer.
func (p *peer) refuse(err error) {
	var s status
	if !errors.As(err, &s) {
		return
	}
	_ = p.net.SetDeadline(time.Now().Add(lastGasp))
	_, _ = fmt.Fprintf(p.net, "HTTP/1.1 %v\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%v", s, s)
	p.linger()
}

// lastGasp is how long a client has to read the last answer on a connection that
// is closed before all was read: else the kernel would take that answer back.
const lastGasp = 500 * time.Millisecond

// linger ends our side and reads what still comes, for a moment.
func (p *peer) linger() {
	c, ok := p.net.(interface{ CloseWrite() error })
	if !ok || c.CloseWrite() != nil {
		return
	}
	_ = p.net.SetReadDeadline(time.Now().Add(lastGasp))
	_, _ = io.CopyN(io.Discard, p.net, mostLeft)
}

// head is what is buffered of the header, and whether that is all of it.
func head(in *bufio.Reader) ([]byte, bool) {
	b, _ := in.Peek(in.Buffered()) // never fails
	if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
		return b[:i+2], true
	}
	return b, false
}

func wholeHead(in *bufio.Reader) bool {
	_, whole := head(in)
	return whole
}

// twoHosts says whether a header names two hosts: who reads the other one than
// we do is misled. http.ReadRequest takes the first and forgets the others.
func twoHosts(in *bufio.Reader) bool {
	b, _ := head(in)
	n := 0
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		if len(line) >= 5 && line[4] == ':' && strings.EqualFold(string(line[:4]), "host") {
			n++
		}
	}
	return n > 1
}
