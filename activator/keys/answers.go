package keys

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// mostAnswer bounds an issuer's discovery document and its keys, in bytes.
const mostAnswer = 1 << 20

// answers is the transport to one issuer. For retryIssuer it repeats the last answer to a URL, or the error.
type answers struct {
	from http.RoundTripper

	mu   sync.Mutex // guards last; held during a request to the issuer
	last map[string]answer
}

type answer struct {
	at   time.Time
	resp *http.Response
	body []byte
	err  error
}

// RoundTrip implements [http.RoundTripper].
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, found := a.last[r.URL.String()]
	if !found || time.Since(l.at) >= retryIssuer {
		l = ask(a.from, r)
		a.last[r.URL.String()] = l
	}
	if l.err != nil {
		return nil, l.err
	}
	resp := *l.resp
	resp.Body = io.NopCloser(bytes.NewReader(l.body))
	return &resp, nil
}

func ask(from http.RoundTripper, r *http.Request) (l answer) {
	defer func() { l.at = time.Now() }()
	if l.resp, l.err = from.RoundTrip(r); l.err != nil { //nolint:bodyclose // it is closed below
		return l
	}
	defer l.resp.Body.Close()
	l.body, l.err = io.ReadAll(l.resp.Body)
	return l
}
