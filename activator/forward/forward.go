// Package forward sends one request to one instance and carries its answer back. It never decides where, waits for
// an instance or retries.
//
//  1. [Client.Send] sends body, headers (but RFC 9110, 7.6.1) and the request's id.
//  2. It waits for the first bytes of the answer. Until then a failure is a [Failure] that tells whether the
//     runtime may have seen the request.
//  3. [Answer.Copy] sends the rest: events and lines whole, each flushed. A stream without its end marker is cut
//     (package relay). Buffers and large headers are charged to the client.
//  4. [Answer.Close] releases the instance. Before the end of the answer it cancels the request there.
//
// A Client is safe for concurrent use; an Answer belongs to one goroutine.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay"
)

// HeaderID is the header with a request's id.
const HeaderID = "X-Request-Id"

// Client sends requests to instances.
type Client struct {
	transport http.RoundTripper
}

// NewClient returns a client. transport must reach endpoints, as [api.NewTransport]'s, and must not retry.
func NewClient(transport http.RoundTripper) *Client { return &Client{transport: transport} }

// Call is one attempt to send an inbound request to the instance at Base.
type Call struct {
	In   *http.Request
	Body *inbound.Body
	// In place of Body.
	Instead relay.Body
	ID      string
	Base    *url.URL
	// Wait asks an instance that is being woken to hold the request ([control.HeaderWait]).
	Wait bool
	// Turn is the place among all activators' requests; zero: refused without a free slot.
	Turn   control.Turn
	Tenant string
	// See [control.HeaderModels].
	Models []string
	// Plain: no model server; its headers are not filtered.
	Plain bool
	// Answered is called when the header has come; Send then does not wait for more of a stream.
	Answered    func()
	Trusted     bool // the priority in the body counts
	Credentials bool
	// How an event stream must end.
	Kind api.Stream
	// Idle bounds the answer's pauses after its first byte; 0: none. Then Paused is called, once; it should end the
	// context.
	Idle   time.Duration
	Paused func()
	// An event up to it is buffered until it is whole; a longer one goes on in pieces. 0: 1 MiB.
	MaxEvent api.Bytes
	Usage    *relay.Usage
	// Asks makes the instance report its usage ([control.HeaderUsage]), Counts passes the report to a front door.
	Asks, Counts bool
	// State collects the stream's state for another instance.
	State *relay.State
	// Passed is the kind of state that a front door asks for.
	Passed string
	// Movable: it can be restarted if its instance gives way.
	Movable bool
	// For an answer's memory beyond a small buffer.
	Memory Memory
}

// Memory is an account of memory.
type Memory = relay.Memory

// Failure is an attempt that failed before the client saw a byte.
type Failure struct {
	// Given: the runtime may have seen the request.
	Given bool
	// For a turn at the instance.
	Waited time.Duration
	Code   string
	// For the client, if no other instance answers.
	Err *api.Error
	// For the operator only: it may name addresses and paths.
	Cause error
}

// Error returns the message of Err, with Cause.
func (f *Failure) Error() string {
	if f.Cause != nil {
		return f.Err.Message + ": " + f.Cause.Error()
	}
	return f.Err.Message
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Send blocks until the answer's first bytes have arrived ([Call.Answered]). The error is a *[Failure] or ctx's
// cause.
func (c *Client) Send(ctx context.Context, call Call) (*Answer, error) {
	header := headerMemory{ctx: ctx, Memory: call.Memory}
	resp, err := c.roundTrip(call.request(ctx), &header) //nolint:bodyclose // the Answer closes it
	if err != nil {
		header.release()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case header.refused:
			return nil, api.Errorf(http.StatusServiceUnavailable, api.CodeHoldFull,
				"there is no memory for the header of the answer, which is larger than most: try again").WithRetryAfter(time.Second)
		}
		return nil, Unanswered(err)
	}
	a := newAnswer(ctx, resp, call, header)
	if ctx.Err() != nil && a.Status() == api.StatusClientClosed { // it reports the usage
		a.Close()
		return nil, context.Cause(ctx)
	}
	if call.Answered != nil {
		if call.Answered(); resp.ContentLength < 0 && a.Status()/100 == 2 {
			return a, nil
		}
	}
	if err := a.first(); err != nil {
		a.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, broken(fmt.Errorf("the connection ended before the first byte: %w", err))
	}
	f := a.failure()
	if f == nil && len(a.from.Bytes()) == 0 && call.Kind != api.StreamPlain && a.Events() {
		f = broken(errors.New("the stream ended before its first event"))
	}
	if f != nil {
		a.Close()
		return nil, f
	}
	return a, nil
}

// As package localhttp's.
type charging interface {
	RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error)
}

type headerMemory struct {
	Memory

	ctx     context.Context
	charged int64
	refused bool
}

func (h *headerMemory) charge(n int64) error {
	err := h.Take(h.ctx, n)
	if h.refused = err != nil; err == nil {
		h.charged += n
	}
	return err
}

func (h *headerMemory) release() {
	if h.charged > 0 {
		h.Give(h.charged)
	}
}

func (c *Client) roundTrip(out *http.Request, header *headerMemory) (*http.Response, error) {
	if via := ViaOf(out.Context()); via != nil {
		return via.Transport.RoundTrip(out)
	}
	if t, is := c.transport.(charging); is && header.Memory != nil {
		return t.RoundTripCharged(out, header.charge)
	}
	return c.transport.RoundTrip(out)
}

func (call Call) request(ctx context.Context) *http.Request {
	in := call.In
	h := make(http.Header, len(in.Header)+4)
	relay.CopyHeader(h, in.Header)
	call.Head(h)
	body := call.Instead
	if body == nil {
		body = call.Body
	}
	return relay.Request(ctx, in, call.Base, h, body)
}

// Head makes a client's header the attempt's: it removes what is not for an instance, and adds our own fields.
func (call Call) Head(h http.Header) {
	if !call.Credentials {
		for key := range h {
			if control.Credential(key) {
				delete(h, key)
			}
		}
	}
	if call.Wait {
		h[control.HeaderWait] = []string{"true"}
	}
	if call.Turn.Client != 0 {
		h[control.HeaderQueue] = []string{call.Turn.String()}
	}
	if call.Tenant != "" {
		h[control.HeaderTenant] = []string{call.Tenant}
	}
	if call.Models != nil {
		h[control.HeaderModels] = call.Models
	}
	if call.Trusted {
		h[control.HeaderTrusted] = []string{"true"}
	}
	if call.Asks {
		h[control.HeaderUsage] = []string{"true"}
	}
	switch {
	case call.State != nil:
		h[control.HeaderState] = []string{call.State.Header()}
	case call.Passed != "":
		h[control.HeaderState] = []string{call.Passed}
	case call.Movable:
		h[control.HeaderState] = []string{control.StateNew}
	}
	h[HeaderID] = []string{call.ID}
	if host, _, err := net.SplitHostPort(call.In.RemoteAddr); err == nil {
		if prior := call.In.Header["X-Forwarded-For"]; len(prior) > 0 {
			host = strings.Join(prior, ", ") + ", " + host
		}
		h["X-Forwarded-For"] = []string{host}
	}
}

// Unanswered returns the failure for a transport's error.
func Unanswered(err error) *Failure {
	if relay.Unreachable(err) {
		return &Failure{Code: api.CodeUnhealthy, Cause: err, Err: api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed,
			"the instance can't be reached")}
	}
	return broken(err)
}

// The runtime may have seen the request.
func broken(err error) *Failure {
	return &Failure{Given: true, Code: api.CodeRuntimeFailed, Cause: err, Err: api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed,
		"the instance failed before it answered")}
}

// An instance's refusal or a runtime's failure. In MLflow's envelope a refusal has status 200.
func (a *Answer) failure() *Failure {
	status, code := a.resp.StatusCode, a.resp.Header.Get(control.HeaderRefused)
	if failed := a.resp.Header.Get(control.HeaderFailed); failed != "" {
		e := a.Error()
		e.Status = http.StatusBadGateway
		return &Failure{Given: true, Code: failed, Err: e}
	}
	switch {
	case status == http.StatusOK && code != "" && strings.HasSuffix(a.resp.Request.URL.Path, "/invocations"):
		return &Failure{Code: code, Waited: a.Waited(), Err: api.Errorf(http.StatusServiceUnavailable, code, "the instance refused the request: %s", code)}
	case status != http.StatusBadGateway && status != http.StatusServiceUnavailable:
		return nil
	case code == "" && status != http.StatusBadGateway:
		return nil
	}
	e := a.Error()
	if code != "" {
		return &Failure{Code: code, Err: e, Waited: a.Waited()}
	}
	if e.Code == api.CodeRuntimeFailed {
		return &Failure{Given: true, Code: e.Code, Err: e}
	}
	return nil
}

type callKey struct{}

// WithCall adds a call's number, unique in the process and equal for all attempts of a request.
func WithCall(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, callKey{}, n)
}

// CallOf returns the number of ctx's call; 0: unknown.
func CallOf(ctx context.Context) uint64 {
	n, _ := ctx.Value(callKey{}).(uint64)
	return n
}

// Via means that a gateway sends the request, as with an endpoint picker. The client reads nothing before an
// instance answers.
type Via struct {
	// It takes the request to the chosen instance, at most once.
	Transport http.RoundTripper
	// In place of the body's.
	Model string
	// Allows judges instances by host and port. It must not block.
	Allows func(host string) bool
	// Next holds alternatives' hosts, set before Transport is called, which sets Served to the host that answered,
	// if known.
	Next   []string
	Served string
}

type viaKey struct{}

// WithVia adds v to ctx.
func WithVia(ctx context.Context, v *Via) context.Context { return context.WithValue(ctx, viaKey{}, v) }

// ViaOf returns nil if this process sends the request.
func ViaOf(ctx context.Context) *Via {
	v, _ := ctx.Value(viaKey{}).(*Via)
	return v
}
