package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Body is a request's whole body, which can be read again and again.
type Body interface {
	Len() int
	Reader() io.ReadCloser
}

// Bytes is a [Body] that nobody else writes to.
type Bytes []byte

// Len is its length.
func (b Bytes) Len() int { return len(b) }

// Reader returns a reader of all of it.
func (b Bytes) Reader() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// Request makes the request that goes on to base, at the path and with the method of in, and with the header h, which it
// takes over. A body that is sent can be sent again on another connection, where an idle one turns out to be closed.
func Request(ctx context.Context, in *http.Request, base *url.URL, h http.Header, body Body) *http.Request {
	delete(h, "Expect") // the body is here already
	if _, found := h["User-Agent"]; !found {
		h["User-Agent"] = []string{""} // keeps Go's own out
	}
	out := (&http.Request{
		Method: in.Method,
		URL:    &url.URL{Scheme: base.Scheme, Host: base.Host, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery},
		Host:   in.Host,
		Header: h,
		Body:   http.NoBody,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body.Len() > 0 {
		out.ContentLength, out.Body = int64(body.Len()), body.Reader()
		out.GetBody = func() (io.ReadCloser, error) { return body.Reader(), nil }
	}
	return out
}

// CopyHeader copies what may pass from one connection to the next, and is not ours to say. The values are shared.
func CopyHeader(to, from http.Header) {
	for name, values := range from {
		if !localhttp.PerConnection(name) && !control.Reserved(name) {
			to[name] = values
		}
	}
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
}

// Unreachable says whether an error of a transport means that there was no connection: nobody has seen the request.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}
