package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// outbound makes the runtime's request out of the client's, whose headers it
// takes over. body is whole, so the transport can send it again over a new
// connection where an idle one turns out to be closed.
func (x *exchange) outbound(ctx context.Context, base string, body []byte) *http.Request {
	r := x.r
	out := r.WithContext(ctx)
	out.URL = &url.URL{
		Scheme: "http", Host: strings.TrimPrefix(base, "http://"),
		Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery,
	}
	if host := x.proxy.cfg.Host; host != "" {
		out.Host = host
	}
	out.RequestURI, out.Close, out.TransferEncoding, out.Trailer = "", false, nil, nil
	localhttp.DropConnection(out.Header)
	x.private(out.Header)
	if x.path.Describes {
		delete(out.Header, "Accept-Encoding") // the answer is read here
	}
	delete(out.Header, "Expect") // the body is here, nobody has to ask for it
	if _, found := out.Header["User-Agent"]; !found {
		out.Header["User-Agent"] = []string{""} // else the transport makes one up
	}
	out.ContentLength = int64(len(body))
	out.Body, out.GetBody = http.NoBody, nil
	if len(body) > 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody() // never fails
	}
	return out
}

// copyHeader passes the runtime's headers on, except those of its connection
// and those by which we speak for ourselves.
func copyHeader(dst, src http.Header) {
	localhttp.DropConnection(src)
	for name, values := range src {
		if !control.Reserved(name) {
			dst[name] = values
		}
	}
}
