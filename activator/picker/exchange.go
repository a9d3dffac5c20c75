package picker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/api"
)

const firstWithin = 10 * time.Second

// exchange is one stream. Fields without an owner are set before the request is served.
type exchange struct {
	s      *Server
	stream extproc.ExternalProcessor_ProcessServer
	ctx    context.Context // ends with the stream or over
	cancel context.CancelCauseFunc

	begun  chan *extproc.ProcessingRequest // one, from the receiving goroutine
	mode   modes
	body   *upload
	load   *io.PipeReader      // of the answer
	loads  *io.PipeWriter      // the receiving goroutine's
	answer chan *http.Response // one, from the receiving goroutine
	served string              // set before answer
	cut    atomic.Bool         // the answer was not read to its end
	ended  chan struct{}       // closed by the receiving goroutine after the answer

	over     chan struct{} // closed once
	overOnce sync.Once
	err      error // set before over is closed

	asked http.Header // the serving goroutine's
	got   *answered   // the serving goroutine's; nil: no answer yet
	step  step        // the receiving goroutine's

	mu       sync.Mutex // guards all below, and sending
	named    bool       // the destination is known
	passing  bool       // messages are echoed
	chunks   int        // the request's body pieces without a reply
	trailers bool       // the request's have no reply
	last     bool       // the response's trailers have no reply
}

type answered struct {
	status int
	header http.Header
	empty  bool
}

type step int

const (
	atStart step = iota
	inBody
	inWait
	inAnswer
	atEnd
)

type modes struct {
	request, response filter.ProcessingMode_BodySendMode
	eager             bool // bodies come before the header's reply
}

// By default, those that the extension requires.
func modesOf(m *extproc.ProcessingRequest) modes {
	c := m.GetProtocolConfig()
	if c == nil {
		return modes{filter.ProcessingMode_FULL_DUPLEX_STREAMED, filter.ProcessingMode_FULL_DUPLEX_STREAMED, true}
	}
	return modes{c.GetRequestBodyMode(), c.GetResponseBodyMode(), c.GetSendBodyWithoutWaitingForHeaderResponse()}
}

func (m modes) duplexIn() bool  { return m.request == filter.ProcessingMode_FULL_DUPLEX_STREAMED }
func (m modes) duplexOut() bool { return m.response == filter.ProcessingMode_FULL_DUPLEX_STREAMED }

var errLeft = errors.New("the gateway ended the stream")

// Process implements envoy.service.ext_proc.v3.ExternalProcessor.
func (s *Server) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	from, _ := peer.FromContext(stream.Context())
	c := from.AuthInfo.(connection) // see counted
	c.Begin()
	defer c.End()
	x := &exchange{s: s, stream: stream,
		begun: make(chan *extproc.ProcessingRequest, 1), answer: make(chan *http.Response, 1),
		ended: make(chan struct{}), over: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancelCause(stream.Context())
	defer x.cancel(nil)
	x.body = &upload{}
	x.body.PipeReader, x.body.to = io.Pipe()
	x.load, x.loads = io.Pipe()
	s.streams.Go(x.receive)
	timer := time.AfterFunc(firstWithin, func() {
		x.end(status.Error(codes.DeadlineExceeded, "no header of a request came"))
	})
	defer timer.Stop()
	select {
	case first := <-x.begun:
		timer.Stop()
		if !x.isPassing() {
			s.streams.Go(func() { x.serve(first) })
		}
	case <-x.over:
	}
	<-x.over
	return x.err
}

func (x *exchange) end(err error) {
	x.overOnce.Do(func() {
		x.err = err
		x.cancel(errLeft)
		x.body.fail(errLeft)
		_ = x.load.Close()
		close(x.over)
	})
}

func (x *exchange) receive() {
	defer x.loads.CloseWithError(io.ErrUnexpectedEOF) // no effect on a complete body
	for {
		m, err := x.stream.Recv()
		if errors.Is(err, io.EOF) && x.step == atEnd {
			if !x.mode.duplexOut() || x.isPassing() {
				x.end(nil)
			}
			return // the serving goroutine sends the rest
		}
		if err != nil {
			x.end(nil)
			return
		}
		if err := x.take(m); err != nil {
			x.end(err)
			return
		}
	}
}

func disorder(what string) error {
	return status.Error(codes.InvalidArgument, what)
}

func (x *exchange) take(m *extproc.ProcessingRequest) error {
	if x.step == atStart && m.GetRequestHeaders() == nil {
		return disorder("the first message is not the header of a request")
	}
	switch {
	case m.GetRequestHeaders() != nil:
		return x.takeHeader(m)
	case m.GetRequestBody() != nil:
		return x.takeBody(m)
	case m.GetRequestTrailers() != nil:
		return x.takeTrailers(m)
	case m.GetResponseHeaders() != nil:
		return x.takeAnswer(m)
	case m.GetResponseBody() != nil, m.GetResponseTrailers() != nil:
		return x.takeMore(m)
	}
	return disorder("the message is empty")
}

func (x *exchange) takeHeader(m *extproc.ProcessingRequest) error {
	if x.step != atStart {
		return disorder("a second header of a request")
	}
	x.mode, x.step = modesOf(m), inBody
	if m.GetRequestHeaders().GetEndOfStream() {
		x.step = inWait
		x.body.done()
	}
	to := x.s.front(m)
	x.mu.Lock()
	x.passing = to != ""
	x.mu.Unlock()
	x.begun <- m
	if to != "" {
		return x.send(naming(headers(true, destination(to), nil), to))
	}
	if x.step == inBody && x.mode.request == filter.ProcessingMode_BUFFERED {
		return x.send(headers(true, nil, nil))
	}
	return nil
}

func (x *exchange) takeBody(m *extproc.ProcessingRequest) error {
	if x.step != inBody {
		return disorder("more of a body that has ended, or has not begun")
	}
	b := m.GetRequestBody()
	if b.GetEndOfStream() {
		x.step = inWait
	}
	if x.isPassing() {
		return x.send(x.echo(m))
	}
	x.mu.Lock()
	x.chunks++
	x.mu.Unlock()
	x.body.write(b.GetBody())
	if b.GetEndOfStream() {
		x.body.done()
	}
	return nil
}

func (x *exchange) takeTrailers(m *extproc.ProcessingRequest) error {
	if x.step != inBody {
		return disorder("trailers of a request that has ended, or has not begun")
	}
	x.step = inWait
	if x.isPassing() {
		return x.send(x.echo(m))
	}
	x.mu.Lock()
	x.trailers = true
	x.mu.Unlock()
	x.body.done()
	return nil
}

// takeAnswer handles the header of the instance's answer, or of the gateway's own without a destination.
func (x *exchange) takeAnswer(m *extproc.ProcessingRequest) error {
	if x.step == inAnswer || x.step == atEnd {
		return disorder("a second header of an answer")
	}
	end := m.GetResponseHeaders().GetEndOfStream()
	x.step = inAnswer
	if end {
		x.step = atEnd
	}
	x.mu.Lock()
	x.passing = x.passing || !x.named
	passing := x.passing
	x.mu.Unlock()
	if passing {
		x.cancel(errLeft)
		x.body.fail(errLeft)
		return x.send(x.echo(m))
	}
	resp, err := response(m.GetResponseHeaders(), x.load) //nolint:bodyclose // the activator closes it, and so does end
	if err != nil {
		return err
	}
	x.served = m.GetMetadataContext().GetFilterMetadata()[spaceBalancer].GetFields()[keyServed].GetStringValue()
	x.answer <- resp
	return x.repeated(m, end)
}

// The gateway passes this on itself.
func (x *exchange) repeated(m *extproc.ProcessingRequest, end bool) (err error) {
	if !x.mode.duplexOut() {
		err = x.send(x.echo(m))
	}
	if end {
		close(x.ended)
	}
	return err
}

func (x *exchange) takeMore(m *extproc.ProcessingRequest) error {
	if x.step != inAnswer {
		return disorder("more of an answer that has ended, or has not begun")
	}
	b := m.GetResponseBody()
	if b == nil || b.GetEndOfStream() {
		x.step = atEnd
	}
	if x.isPassing() {
		return x.send(x.echo(m))
	}
	if len(b.GetBody()) > 0 {
		_, _ = x.loads.Write(b.GetBody()) // without a reader the gateway continues
	}
	if x.step == atEnd {
		x.mu.Lock()
		x.last = b == nil
		x.mu.Unlock()
		_ = x.loads.Close()
	}
	return x.repeated(m, x.step == atEnd)
}

func (x *exchange) isPassing() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passing
}

func (x *exchange) send(m *extproc.ProcessingResponse) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sendLocked(m)
}

func (x *exchange) sendLocked(m *extproc.ProcessingResponse) error {
	return x.stream.Send(m)
}

func (x *exchange) serve(first *extproc.ProcessingRequest) {
	w := &writer{x: x, header: make(http.Header)}
	defer w.alarm.set(time.Time{}, nil)
	aborted := false
	if r, bad := x.request(first); bad != nil {
		api.WriteErrorTo(w, r, bad)
	} else {
		aborted = serveHTTP(x.s.deps.Handler, w, r)
	}
	x.body.fail(errLeft)
	x.end(w.finish(aborted))
}

// serveHTTP reports whether the handler aborted the client's connection.
func serveHTTP(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}
