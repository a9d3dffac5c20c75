package picker

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/peer"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
)

// Names in the protocol (the extension's proposal 004).
const (
	keyDestination = "x-gateway-destination-endpoint"
	keyServed      = "x-gateway-destination-endpoint-served"
	spaceBalancer  = "envoy.lb" // for both
	keySubset      = "x-gateway-destination-endpoint-subset"
	spaceSubset    = "envoy.lb.subset_hint"
)

const mostNamed = 3

// The request is not nil even with an error.
func (x *exchange) request(m *extproc.ProcessingRequest) (*http.Request, *api.Error) {
	h := m.GetRequestHeaders()
	pseudo, header := headersOf(h.GetHeaders())
	u, err := url.ParseRequestURI(pseudo[":path"])
	if err != nil || pseudo[":method"] == "" {
		return &http.Request{URL: &url.URL{}}, api.BadRequest("", "the gateway sent no method, or no path that can be read")
	}
	r := &http.Request{Method: pseudo[":method"], URL: u, RequestURI: pseudo[":path"], Proto: "HTTP/2.0", ProtoMajor: 2, Header: header,
		Host: pseudo[":authority"], Body: x.body, ContentLength: length(header)}
	x.asked = header.Clone()
	if p, ok := peer.FromContext(x.ctx); ok {
		r.RemoteAddr = p.Addr.String()
	}
	if h.GetEndOfStream() {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	via := &forward.Via{Transport: x, Model: cmp.Or(header.Get("X-Llm-D-Model-Name-Rewrite"), header.Get("X-Gateway-Model-Name-Rewrite"))}
	if list, limited := subset(m); limited {
		if len(list) == 0 || x.s.cfg.Front != "" {
			return r, errNone
		}
		via.Allows = list.has
	}
	bad := x.bodyless(r, h.GetEndOfStream())
	return r.WithContext(forward.WithVia(x.ctx, via)), bad
}

// bodyless handles a body that does not come, or comes too late.
func (x *exchange) bodyless(r *http.Request, ended bool) *api.Error {
	if ended {
		return nil
	}
	model := cmp.Or(r.Header.Get("X-Llm-D-Model-Name"), r.Header.Get("X-Gateway-Model-Name")) // of a request whose body does not come
	switch mode := x.mode.request; {
	case x.mode.duplexIn(), mode == filter.ProcessingMode_BUFFERED, mode == filter.ProcessingMode_STREAMED && x.mode.eager:
		return nil
	case mode == filter.ProcessingMode_NONE && model != "":
		body := `{"model":` + strconv.Quote(model) + `}`
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		return nil
	default:
		return api.Errorf(http.StatusInternalServerError, "", "the gateway sends bodies to its endpoint picker as %s: configure FULL_DUPLEX_STREAMED or BUFFERED", mode)
	}
}

func headersOf(m *core.HeaderMap) (pseudo map[string]string, h http.Header) {
	pseudo, h = map[string]string{}, make(http.Header, len(m.GetHeaders()))
	for _, one := range m.GetHeaders() {
		value := string(one.GetRawValue())
		if value == "" {
			value = one.GetValue()
		}
		switch name := strings.ToLower(one.GetKey()); {
		case strings.HasPrefix(name, ":"):
			pseudo[name] = value
		case name == "host":
			if pseudo[":authority"] == "" {
				pseudo[":authority"] = value
			}
		default:
			h.Add(name, value)
		}
	}
	return pseudo, h
}

// -1: unknown
func length(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// ip:port, or an ip for all of its ports.
type endpoints []string

// limited is false if the gateway allows all.
func subset(m *extproc.ProcessingRequest) (list endpoints, limited bool) {
	v, limited := m.GetMetadataContext().GetFilterMetadata()[spaceSubset].GetFields()[keySubset]
	list = split(v.GetStringValue())
	for _, one := range v.GetListValue().GetValues() {
		list = append(list, split(one.GetStringValue())...)
	}
	return list, limited
}

func (list endpoints) has(host string) bool {
	ip, _, err := net.SplitHostPort(host)
	return slices.Contains(list, host) || err == nil && slices.Contains(list, ip)
}

// front returns the allowed activators, this one first. Empty: requests go to instances, or none is allowed.
func (s *Server) front(m *extproc.ProcessingRequest) string {
	list, limited := subset(m)
	if s.cfg.Front == "" || !limited {
		return s.cfg.Front
	}
	to := slices.DeleteFunc(slices.Clone(list), func(host string) bool { return host == s.cfg.Front || !reachable(host) })
	if list.has(s.cfg.Front) {
		to = slices.Insert(to, 0, s.cfg.Front)
	}
	return strings.Join(to[:min(len(to), mostNamed)], ",")
}

func split(v string) []string {
	list := strings.Split(v, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

func response(m *extproc.HttpHeaders, body io.ReadCloser) (*http.Response, error) {
	pseudo, h := headersOf(m.GetHeaders())
	code, err := strconv.Atoi(pseudo[":status"])
	if err != nil || code < 100 || code > 599 {
		return nil, disorder("the answer has no status")
	}
	resp := &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: length(h), Body: body}
	if m.GetEndOfStream() {
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp, nil
}

func reachable(host string) bool {
	_, err := netip.ParseAddrPort(host)
	return err == nil
}

type alarm struct {
	mu    sync.Mutex // guards timer
	timer *time.Timer
}

// zero: no call
func (a *alarm) set(t time.Time, f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	if !t.IsZero() {
		a.timer = time.AfterFunc(time.Until(t), f)
	}
}

// upload is the body of a request, from the receiving goroutine to the activator.
type upload struct {
	*io.PipeReader

	to    *io.PipeWriter
	alarm alarm
}

// write blocks until the bytes are read or the reader has ended.
func (u *upload) write(p []byte) {
	if len(p) > 0 {
		_, _ = u.to.Write(p) // a reader that has ended reports its own reason
	}
}

func (u *upload) done() { _ = u.to.Close() }

// The body is incomplete.
func (u *upload) fail(err error) {
	u.deadline(time.Time{})
	_ = u.to.CloseWithError(err)
	_ = u.CloseWithError(err)
}

// zero: none
func (u *upload) deadline(t time.Time) {
	u.alarm.set(t, func() { _ = u.to.CloseWithError(os.ErrDeadlineExceeded) })
}

// The gateway can't send the request again.
var errSpent = api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy,
	"the instance did not take the request, or failed, and the gateway has sent it already: try again").WithRetryAfter(time.Second)

var errNone = api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "the gateway allows none of the pool's endpoints: try again").WithRetryAfter(time.Second)
