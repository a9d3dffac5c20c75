package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Body is a request's whole body, which can be read repeatedly.
type Body interface {
	Len() int
	Reader() io.ReadCloser
}

// Bytes is a [Body] in a slice that nobody modifies.
type Bytes []byte

// Len returns the length of b.
func (b Bytes) Len() int { return len(b) }

// Reader returns a reader of all bytes.
func (b Bytes) Reader() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// Request returns the outbound request to base, with the path and method of in and the header h, which it takes over.
// The body can be resent on another connection if an idle one turns out to be closed.
func Request(ctx context.Context, in *http.Request, base *url.URL, h http.Header, body Body) *http.Request {
	delete(h, "Expect") // the body is already here
	if _, found := h["User-Agent"]; !found {
		h["User-Agent"] = []string{""} // suppresses Go's own
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

// CopyHeader copies the headers that may pass between connections and that Rouse does not set itself. It shares the
// values.
func CopyHeader(to, from http.Header) {
	for name, values := range from {
		if !localhttp.PerConnection(name) && !control.Reserved(name) {
			to[name] = values
		}
	}
	localhttp.DropNamed(to, from["Connection"])
}

// Unreachable reports whether a transport's error means that there was no connection, so that no server has seen the
// request.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}
