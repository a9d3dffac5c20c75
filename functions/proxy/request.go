package proxy

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

// outbound makes the runtime's request out of the client's, whose headers it
// takes over.
func (x *exchange) outbound(ctx context.Context, base string, body []byte) *http.Request {
	h := x.r.Header
	localhttp.DropConnection(h)
	x.private(h)
	if x.path.Describes {
		delete(h, "Accept-Encoding") // the answer is read here
	}
	out := relay.Request(ctx, x.r, &url.URL{Scheme: "http", Host: strings.TrimPrefix(base, "http://")}, h, relay.Bytes(body))
	if host := x.proxy.cfg.Host; host != "" {
		out.Host = host
	}
	return out
}
