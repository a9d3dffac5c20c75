package pyfunc

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"golang.org/x/net/http/httpguts"
)

const maxPath = 8 << 10

// target returns the URL of an inner request from url_path. The stock server joins the two as a browser does; a path that may lead
// elsewhere is refused here.
func target(path string, compat bool) (*url.URL, *api.Error) {
	raw, query, _ := strings.Cut(path, "?")
	slashed := strings.HasPrefix(raw, "//")
	raw = strings.TrimPrefix(raw, "/")
	first, _, _ := strings.Cut(raw, "/")
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		decoded = raw // stock clients send decoded paths: a percent sign may be literal
	}
	var why string
	switch {
	case len(path) > maxPath:
		why = fmt.Sprintf("has %d bytes, of %d that it may have", len(path), maxPath)
	case !httpguts.ValidHeaderFieldValue(path) || strings.Contains(path, "\t"):
		why = "has a control character in it"
	case slashed:
		why = "begins with two slashes, as if a host followed"
	case strings.Contains(first, ":"):
		why = "is an absolute URL"
	default:
		why = leads(decoded)
	}
	if why != "" {
		return nil, api.BadRequest("url_path", "url_path %s: want a path such as /chat/completions", why)
	}
	u := &url.URL{Path: "/" + decoded, RawQuery: printable(query)}
	if compat {
		u.Path = "/v1/" + decoded
	}
	if err == nil {
		u.RawPath = strings.TrimSuffix(u.Path, decoded) + raw // used only if it encodes Path
	}
	return u, nil
}

// leads returns why a decoded path may lead elsewhere; empty: it does not.
func leads(path string) string {
	for i := range len(path) {
		switch c := path[i]; {
		case c < ' ' || c == 0x7f:
			return "has a control character in it"
		case c == '\\' || c == '#':
			return fmt.Sprintf("has a %c in it", c)
		}
	}
	lower := strings.ToLower(path)
	for _, encoded := range []string{"%2e", "%2f", "%5c", "%00", "%25"} {
		if strings.Contains(lower, encoded) {
			return "is encoded more than once"
		}
	}
	if strings.HasPrefix(path, "/") || strings.Contains(path, "//") {
		return "has an empty segment in it"
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "has the segment " + segment + " in it"
		}
	}
	return ""
}

func printable(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// ours reports whether the caller may not set a header of an inner request.
func ours(name string) bool {
	return slices.Contains([]string{"Host", "Content-Length", "Expect", "Accept-Encoding"}, name) || localhttp.PerConnection(name) || control.Reserved(name) && name != control.HeaderQueue || control.Forwarded(name)
}

// Inner requests that lack the headers in shared get them from their call. They always get those in caller.
var (
	shared = []string{"X-Request-Id", "Traceparent", "Tracestate"}
	caller = []string{control.HeaderTenant, control.HeaderTrusted, control.HeaderUsage, "Forwarded", "X-Forwarded-For", "X-Real-Ip"}
)

func header(fields []Field, outer http.Header, credentials bool) (http.Header, *api.Error) {
	h := make(http.Header, len(fields)+2)
	for _, f := range fields {
		if !httpguts.ValidHeaderFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return nil, api.BadRequest("headers", "the header %q can't be sent: want a name of letters, digits and dashes, and a value without control characters", f.Name)
		}
		if name := http.CanonicalHeaderKey(f.Name); !ours(name) && (credentials || !control.Credential(name)) {
			h[name] = append(h[name], f.Value)
		}
	}
	for _, name := range slices.Concat(shared, caller) {
		if v, found := outer[name]; found && (h[name] == nil || slices.Contains(caller, name)) {
			h[name] = v
		}
	}
	return h, nil
}
