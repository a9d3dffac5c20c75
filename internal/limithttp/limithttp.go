// Package limithttp bounds the size of responses from untrusted servers.
package limithttp

import (
	"fmt"
	"io"
	"net/http"
)

// Transport is a transport whose responses have at most Bytes bytes, after decompression: reading more is an error.
type Transport struct {
	From  http.RoundTripper // nil: [http.DefaultTransport]
	Bytes int64
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	from := t.From
	if from == nil {
		from = http.DefaultTransport
	}
	resp, err := from.RoundTrip(r)
	if err == nil {
		resp.Body = &body{resp.Body, t.Bytes, fmt.Errorf("%s answers with more than %d bytes", r.URL.Host, t.Bytes)}
	}
	return resp, err
}

type body struct {
	io.ReadCloser
	left int64 // below 0: there were more
	more error
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.more
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.more
	}
	return n, err
}
