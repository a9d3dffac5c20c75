package picker

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

// writer turns the activator's answer into an immediate response or the instance's. It belongs to the serving
// goroutine, except for its deadlines.
type writer struct {
	x      *exchange
	header http.Header
	status int // 0: nothing was written
	way    way
	buf    bytes.Buffer
	alarm  alarm
}

type way int

const (
	immediate way = iota // to the client, whole
	onward               // to the client, in place of the instance's
	nowhere              // the gateway passes the instance's answer on
)

// Header implements [http.ResponseWriter].
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(code int) {
	if w.status != 0 {
		return
	}
	w.status = code
	got := w.x.got
	switch {
	case got == nil:
	case !w.x.mode.duplexOut():
		w.way = nowhere
	case !got.empty || got.status == code: // no body can be added
		w.way = onward
		set, remove := changed(got, code, w.header)
		_ = w.x.send(headers(false, set, remove)) // the receiver notices an end
	}
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.x.left() {
		return 0, errLeft
	}
	if w.way == nowhere {
		return len(p), nil
	}
	_, _ = w.buf.Write(p)
	if w.way == onward && w.buf.Len() >= chunk {
		return len(p), w.FlushError()
	}
	return len(p), nil
}

func (x *exchange) left() bool {
	select {
	case <-x.over:
		return true
	default:
		return errors.Is(context.Cause(x.ctx), errLeft) || x.stream.Context().Err() != nil
	}
}

// FlushError supports [http.ResponseController].
func (w *writer) FlushError() error {
	for w.way == onward && w.buf.Len() > 0 {
		if err := w.x.send(piece(false, w.buf.Next(chunk), false)); err != nil {
			return err
		}
	}
	return nil
}

// SetReadDeadline bounds the reading of the request's body.
func (w *writer) SetReadDeadline(t time.Time) error {
	w.x.body.deadline(t)
	return nil
}

// SetWriteDeadline ends a stream that the gateway does not read.
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.alarm.set(t, func() { w.x.end(status.Error(codes.DeadlineExceeded, "the answer was not read")) })
	return nil
}

// finish returns the stream's error.
func (w *writer) finish(aborted bool) error {
	x := w.x
	switch {
	case x.isPassing():
		<-x.over
		return nil
	case x.left():
		return nil
	case aborted || w.status == 0:
		return status.Error(codes.Unavailable, "the answer was cut")
	case w.way == immediate:
		return x.send(w.whole())
	case w.way == nowhere:
		w.await()
		return nil
	}
	w.await()
	if err := w.FlushError(); err != nil || x.got.empty {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.sendLocked(piece(false, nil, !x.last)); err != nil || !x.last {
		return err
	}
	return x.sendLocked(trailers(false))
}

// await waits for the end of an answer that the activator has not cut.
func (w *writer) await() {
	if w.x.cut.Load() {
		return
	}
	select {
	case <-w.x.ended:
	case <-w.x.over:
	}
}

func (w *writer) whole() *extproc.ProcessingResponse {
	w.header.Del("Content-Length")
	set, _ := changed(&answered{status: w.status}, w.status, w.header)
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
		Status:  &envoytype.HttpStatus{Code: envoytype.StatusCode(w.status)},
		Headers: &extproc.HeaderMutation{SetHeaders: set}, Body: w.buf.Bytes(), Details: "rouse"}}}
}

// From the instance's header to the client's.
func changed(got *answered, code int, to http.Header) (set []*core.HeaderValueOption, remove []string) {
	if code != got.status {
		set = append(set, header(":status", strconv.Itoa(code), false))
	}
	for name, values := range to {
		if localhttp.PerConnection(name) || slices.Equal(values, got.header[name]) {
			continue
		}
		for i, v := range values {
			set = append(set, header(name, v, i > 0))
		}
	}
	for name := range got.header {
		if to[name] == nil && !localhttp.PerConnection(name) {
			remove = append(remove, strings.ToLower(name))
		}
	}
	return set, remove
}
