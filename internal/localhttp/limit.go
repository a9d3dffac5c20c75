package localhttp

import (
	"fmt"
	"io"
	"net/http"
)

// Limit is a transport for servers that are not trusted: their responses have at most Bytes bytes, after decompression.
// Reading more is an error.
type Limit struct {
	From  http.RoundTripper // nil: [http.DefaultTransport]
	Bytes int64
}

// RoundTrip implements [http.RoundTripper].
func (l Limit) RoundTrip(r *http.Request) (*http.Response, error) {
	from := l.From
	if from == nil {
		from = http.DefaultTransport
	}
	resp, err := from.RoundTrip(r)
	if err == nil {
		resp.Body = &limited{resp.Body, l.Bytes, fmt.Errorf("%s answers with more than %d bytes", r.URL.Host, l.Bytes)}
	}
	return resp, err
}

type limited struct {
	io.ReadCloser
	left int64 // below 0: there were more
	more error
}

// Read implements [io.Reader].
func (b *limited) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.more
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.more
	}
	return n, err
}
