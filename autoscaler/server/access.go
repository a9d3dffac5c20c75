package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// HeaderToken carries the cluster's token if Authorization can't.
const HeaderToken = "X-Rouse-Token"

func bearer(r *http.Request) string {
	if t := r.Header.Get(HeaderToken); t != "" {
		return t
	}
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// trusted compares in constant time.
func (s *server) trusted(r *http.Request) bool {
	want := s.Token()
	x, y := sha256.Sum256([]byte(bearer(r))), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && want != ""
}

func errToken(what string) error {
	return api.Errorf(http.StatusUnauthorized, "", "%s wants the cluster's token as a bearer token or in the header %s; it is in the Secret %s of the system namespace, under the key %q",
		what, HeaderToken, control.ControlSecret, control.ControlSecretKey)
}

func (s *server) admitted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.trusted(r) {
			api.WriteError(w, errToken("an administrative path"))
			return
		}
		next(w, r)
	}
}

func from(r *http.Request) (netip.Addr, error) {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, api.Errorf(http.StatusForbidden, "", "the connection has no IP address (%q): instances are known by theirs", r.RemoteAddr)
	}
	return ap.Addr().Unmap().WithZone(""), nil
}

// Of callers without the cluster's token.
const (
	maxReport   = 256 << 10        // bytes of a body
	bodyTimeout = 10 * time.Second // to read it
	atOnce      = 128              // of their requests in work
	eachAtOnce  = 8                // from one address: a slow pod must not block others
	perSecond   = 50               // of one address, in the long run
	burst       = 200
	maxCallers  = 10000 // remembered addresses
)

// callers bounds requests without the cluster's token.
type callers struct {
	mu     sync.Mutex // guards all below and its contents
	inWork int
	known  map[netip.Addr]*caller
}

type caller struct {
	limit  *rate.Limiter
	inWork int
}

func newCallers() *callers { return &callers{known: map[netip.Addr]*caller{}} }

// enter's leave must be called when the request is done. Errors are *[api.Error] with status 429.
func (c *callers) enter(from netip.Addr) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.caller(from)
	switch {
	case !one.limit.Allow():
		err = api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "%s sends more than %d requests a second", from, perSecond).WithRetryAfter(time.Second / 4)
	case one.inWork >= eachAtOnce:
		err = api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "%d requests of %s are being served: come back when they are", eachAtOnce, from).WithRetryAfter(time.Second / 4)
	case c.inWork >= atOnce:
		err = api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "%d instances are being served: come back soon", atOnce).WithRetryAfter(time.Second / 4)
	}
	if err != nil {
		return nil, err
	}
	one.inWork++
	c.inWork++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.inWork--
		c.inWork--
	}, nil
}

func (c *callers) caller(from netip.Addr) *caller {
	one := c.known[from]
	if one != nil {
		return one
	}
	if len(c.known) >= maxCallers {
		for a, old := range c.known {
			if old.inWork == 0 && old.limit.Tokens() >= burst {
				delete(c.known, a)
			}
		}
	}
	if len(c.known) >= maxCallers { // atOnce still bounds them
		clear(c.known)
	}
	one = &caller{limit: rate.NewLimiter(perSecond, burst)}
	c.known[from] = one
	return one
}

// bound limits a request's body. done resets the connection's deadline.
func bound(w http.ResponseWriter, r *http.Request, size int64) (done func()) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // a recorder in a test has none
	r.Body = http.MaxBytesReader(w, r.Body, size)
	return func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 4<<10)) // the connection can be reused
		_ = rc.SetReadDeadline(time.Time{})
	}
}
