package picker

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Some gateways accept at most 64 KiB in a message.
const chunk = 62000

// RoundTrip tells the gateway the destination, and returns the instance's answer.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	via := forward.ViaOf(out.Context())
	x.mu.Lock()
	err := x.name(out, via)
	x.mu.Unlock()
	if err != nil {
		x.cancel(err)
		return nil, err
	}
	select {
	case resp := <-x.answer:
		resp.Request, via.Served = out, x.served
		x.got = &answered{status: resp.StatusCode, header: resp.Header, empty: resp.Body == http.NoBody}
		resp.Body = &answerBody{ReadCloser: resp.Body, x: x, left: resp.ContentLength}
		return resp, nil
	case <-out.Context().Done():
		return nil, context.Cause(out.Context())
	}
}

// The caller holds mu.
func (x *exchange) name(out *http.Request, via *forward.Via) error {
	switch {
	case x.named:
		return errSpent
	case x.passing:
		return errLeft
	case !reachable(out.URL.Host):
		return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "a gateway can't reach the instance, which has no address of its own: start the endpoint picker with --picker-front")
	}
	body := io.Reader(http.NoBody)
	if out.Body != nil {
		body = out.Body
	}
	to := strings.Join(append([]string{out.URL.Host}, slices.DeleteFunc(via.Next, func(host string) bool { return !reachable(host) })...), ",")
	set := destination(to)
	var whole []byte // replaces the body
	if via.Model != "" {
		p, err := io.ReadAll(body)
		if err != nil {
			return errLeft
		}
		whole = jsonfield.Set(p, "model", []byte(strconv.Quote(via.Model)))
		body = bytes.NewReader(whole)
		set = append(set, header("content-length", strconv.Itoa(len(whole)), false))
	}
	change := &extproc.HeaderMutation{SetHeaders: append(set, told(out.Header)...), RemoveHeaders: untold(x.asked, out.Header)}
	x.named = true
	if x.mode.request == filter.ProcessingMode_BUFFERED && x.chunks > 0 {
		return x.sendLocked(naming(buffered(change, whole), to))
	}
	if err := x.sendLocked(naming(headers(true, change.SetHeaders, change.RemoveHeaders), to)); err != nil {
		return err
	}
	switch {
	case !x.mode.duplexIn():
		for range x.chunks {
			if err := x.sendLocked(untouched(true)); err != nil {
				return err
			}
		}
	case x.chunks > 0:
		if err := x.repeat(true, body, !x.trailers); err != nil {
			return err
		}
	}
	if x.trailers {
		return x.sendLocked(trailers(true))
	}
	return nil
}

// The caller holds mu.
func (x *exchange) repeat(request bool, body io.Reader, end bool) error {
	buf := make([]byte, chunk)
	for {
		n, err := io.ReadFull(body, buf)
		over := err != nil
		if err := x.sendLocked(piece(request, buf[:n], over && end)); err != nil || over {
			return err
		}
	}
}

// Closing answerBody early cuts the answer; either way the request ends.
type answerBody struct {
	io.ReadCloser

	x    *exchange
	left int64 // negative: unknown
	over bool
}

// Read implements [io.Reader].
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
		b.over = b.left <= 0
	}
	b.over = b.over || err == io.EOF
	return n, err
}

// Close implements [io.Closer].
func (b *answerBody) Close() error {
	if !b.over && !b.x.got.empty {
		b.x.cut.Store(true)
	}
	b.x.cancel(errSpent)
	return b.ReadCloser.Close()
}

func told(h http.Header) (set []*core.HeaderValueOption) {
	for name, values := range h {
		if control.Reserved(name) || name == forward.HeaderID {
			for i, v := range values {
				set = append(set, header(name, v, i > 0))
			}
		}
	}
	return set
}

// Only we may set these, or they are for us.
func untold(asked, told http.Header) (remove []string) {
	for name := range asked {
		if (control.Reserved(name) || control.Credential(name)) && told[name] == nil {
			remove = append(remove, strings.ToLower(name))
		}
	}
	return remove
}
