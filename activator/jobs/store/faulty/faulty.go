// Package faulty fails requests to an S3 service, for tests.
package faulty

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// Proxy fails some requests, before or after the service has executed them.
type Proxy struct {
	proxy  *httputil.ReverseProxy
	rate   atomic.Uint32
	down   atomic.Bool
	Faults atomic.Int64
}

// New serves a proxy until the test ends. It fails nothing yet.
func New(t testing.TB, service s3.Service) (*Proxy, s3.Service) {
	at, err := url.Parse(service.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &Proxy{proxy: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = at.Scheme, at.Host
		r.Out.Host = r.In.Host
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}}
	service.Endpoint = s3test.Serve(t, f).Endpoint
	return f, service
}

// Fail sets how many of a thousand requests fail.
func (f *Proxy) Fail(rate int) { f.rate.Store(uint32(rate)) } // it is up to 1000

// Down makes all requests fail, as if the machine were gone.
func (f *Proxy) Down(down bool) { f.down.Store(down) }

// ServeHTTP implements [http.Handler].
func (f *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.down.Load() {
		f.Faults.Add(1)
		panic(http.ErrAbortHandler)
	}
	if rand.Uint32N(1000) >= f.rate.Load() {
		f.proxy.ServeHTTP(w, r)
		return
	}
	f.Faults.Add(1)
	switch rand.N(6) {
	case 0:
		s3test.Refuse(w, http.StatusInternalServerError, "InternalError")
	case 1:
		s3test.Refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case 2: // nothing was executed
		panic(http.ErrAbortHandler)
	case 3: // it was executed
		f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case 4:
		f.proxy.ServeHTTP(&cut{ResponseWriter: w, left: rand.N(64)}, r)
		panic(http.ErrAbortHandler)
	default: // it takes longer than any client waits
		f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	}
}

type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	c.left = 0
	return 0, io.ErrShortWrite
}
