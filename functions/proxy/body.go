package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/api"
)

// prepare reads the whole body and makes of it what the runtime gets. Its errors
// are the client's faults, or that it left.
func (x *exchange) prepare() ([]byte, error) {
	if err := x.encoding(); err != nil {
		return nil, err
	}
	body, err := ReadBody(x.w, x.r, x.proxy.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	if isText(x.r.Header.Get("Content-Type")) && !utf8.Valid(body) {
		return nil, api.BadRequest("", "the body is not valid UTF-8 at byte %d: send JSON encoded as UTF-8", invalidAt(body))
	}
	if x.proxy.cfg.Adapter != nil {
		x.outcome.Adapter = x.proxy.cfg.Adapter(body)
	}
	if body, err = x.asked(body); err != nil {
		return nil, err
	}
	if x.proxy.cfg.Dialect == nil {
		return body, nil
	}
	out, refused := x.proxy.cfg.Dialect.Request(x.r.URL.Path, body)
	if refused != nil {
		return nil, refused
	}
	return out, nil
}

// encoding refuses a body that is compressed: model servers do not expand one,
// and what a few bytes expand to is the sender's choice.
func (x *exchange) encoding() error {
	for _, name := range x.r.Header["Content-Encoding"] {
		if name != "" && !strings.EqualFold(name, "identity") {
			x.w.Header().Set("Accept-Encoding", "identity") // RFC 9110, 15.5.16
			return api.Errorf(http.StatusUnsupportedMediaType, "", "the body's Content-Encoding is %q: send it uncompressed", name)
		}
	}
	return nil
}

// firstStep bounds what is allocated on a client's word alone; after that memory
// follows the bytes that came.
const firstStep = 1 << 20

// ReadBody reads the whole body of a request. Its errors are the client's faults,
// as [api.WriteError] takes them, or that it left. It waits for as long as the
// server's ReadTimeout lets it.
func ReadBody(w http.ResponseWriter, r *http.Request, most api.Bytes) ([]byte, error) {
	limit, want := int64(most), r.ContentLength
	if want > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	var body []byte
	var err error
	switch {
	case want == 0:
		return nil, nil
	case want > 0 && want <= firstStep:
		body = make([]byte, want)
		_, err = io.ReadFull(r.Body, body)
	default:
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil || errors.As(err, &tooLarge):
		return body, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, api.Errorf(http.StatusRequestTimeout, "", "the body came too slowly: send it faster, or less of it")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, api.BadRequest("", "the body ends before its Content-Length or last chunk")
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	}
	return nil, api.BadRequest("", "read the request's body: %v", err)
}

// isText says whether a body of a Content-Type is JSON, or what people send as
// JSON: without a type, or with the one that curl gives to all.
func isText(kind string) bool {
	media, _, _ := strings.Cut(kind, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); media {
	case "", "application/json", "application/x-www-form-urlencoded", "text/plain":
		return true
	}
	return strings.HasSuffix(media, "+json")
}

// invalidAt returns the offset of the first byte that is not UTF-8.
func invalidAt(body []byte) int {
	for at := 0; at < len(body); {
		r, n := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
	return len(body)
}
