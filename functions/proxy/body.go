package proxy

import (
	"bytes"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// prepare reads the whole body and converts it for the runtime. Its errors are the client's faults, or that it left.
func (x *exchange) prepare() (*jsonfield.Object, error) {
	read, err := x.cfg.Door.Read(x.w, x.r, Client(x.r))
	if err != nil {
		return nil, err // an error for the client
	}
	x.body = read
	x.report.tells, x.report.learned = x.r.Header[control.HeaderUsage] != nil, &x.Proxy.moved
	if control.KnownState(x.r.Header.Get(control.HeaderState)) && !x.tellsState() && !x.cfg.Inside { // it would begin again
		return nil, api.Errorf(http.StatusBadRequest, api.CodeStreamCut, "the answer was cut, and this runtime does not go on with it: ask again")
	}
	body := read.Bytes()
	kind := x.r.Header.Get("Content-Type")
	if !isText(kind) {
		if err := form(kind, body); err != nil {
			return nil, err
		}
	} else if err := jsonfield.CheckUTF8(body); err != nil {
		return nil, api.BadRequest("", "%v", err)
	} else if len(body) > 0 && !strings.Contains(kind, "json") {
		x.r.Header.Set("Content-Type", "application/json") // vLLM and SGLang refuse the type that curl -d sends
	}
	if !x.cfg.Inside { // a handler is trusted
		if err := x.media(body); err != nil {
			return nil, err
		}
	}
	object := read.Object()
	if x.cfg.Adapter != nil {
		x.outcome.Adapter = x.cfg.Adapter(object)
	}
	if err := x.asked(object); err != nil || x.held() {
		return object, err // the form of the request for an adapter is known once it is loaded
	}
	return object, x.translate(object)
}

// held reports whether a request needs an adapter that may have to be loaded.
func (x *exchange) held() bool { return x.outcome.Adapter != "" && x.cfg.Hold != nil }

// translate converts a body for the runtime.
func (x *exchange) translate(body *jsonfield.Object) error {
	if x.cfg.Dialect == nil {
		return nil
	}
	if refused := x.cfg.Dialect.Request(x.r.URL.Path, body); refused != nil {
		return refused
	}
	if s, is := x.cfg.Dialect.(Streamer); is {
		x.joins = s.Stream(x.r.URL.Path, body)
	}
	if !x.joins && !x.cfg.Inside {
		x.report.request(x.cfg.Dialect, x.r.URL.Path, body)
	}
	return nil
}

// form refuses a multipart body that does not begin with its boundary: some parsers read a preamble, and some skip it.
func form(kind string, body []byte) error {
	media, params, err := mime.ParseMediaType(kind)
	if err != nil || !strings.HasPrefix(media, "multipart/") {
		return nil
	}
	if begin := "--" + params["boundary"]; params["boundary"] == "" || !bytes.HasPrefix(body, []byte(begin+"\r\n")) {
		return api.BadRequest("", "the form does not begin with the boundary that its Content-Type names: send it as it was encoded")
	}
	return nil
}

// Client returns the payer of a request's body: the tenant that the activator names, else the client's address.
func Client(r *http.Request) string {
	if tenant := r.Header.Get(control.HeaderTenant); tenant != "" {
		return tenant
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty on a Unix socket
	return host
}

// isText reports whether a body of a Content-Type may be JSON: a JSON type, none, or the types that curl and others send for JSON.
func isText(kind string) bool {
	media, _, _ := strings.Cut(kind, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); media {
	case "", "application/json", "application/x-www-form-urlencoded", "text/plain":
		return true
	}
	return strings.HasSuffix(media, "+json")
}
