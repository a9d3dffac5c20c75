// Package forward carries one request to one instance and its answer back.
//
// It never decides where a request goes, never waits for an instance and never
// tries again: it says what happened, and whether the request may be sent elsewhere.
//
// The life of one attempt:
//
//  1. [Client.Send] sends the body as it came, the headers without the ones
//     that belong to one connection (RFC 9110, 7.6.1), and the request's id.
//  2. It waits for the first bytes of the answer's body, not only for its
//     header: until then the client has seen nothing, and a failure is a
//     [Failure] that says whether the runtime may have seen the request.
//  3. [Answer.Copy] hands the rest to the client. Events and lines of JSON are passed
//     on whole, each flushed at once, and their end is judged (package relay): a stream that is
//     cut, or that ends without saying that it is complete, is an error. What is kept back of
//     an event has a bound and is charged to the client, as a large header is.
//     [relay.State] keeps what an instance says of a stream for another one that goes on with it; the client does not see that.
//  4. [Answer.Close] lets go of the instance; before the end it cancels the
//     request there, so that the runtime stops generating.
//
// A Client is safe for many goroutines; an Answer belongs to one.
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

// HeaderID carries a request's id.
const HeaderID = "X-Request-Id"

// Client sends requests.
type Client struct {
	transport http.RoundTripper
}

// NewClient makes a client. transport must reach endpoints as [api.NewTransport] does and must not retry on its own what it has sent.
func NewClient(transport http.RoundTripper) *Client { return &Client{transport: transport} }

// Call is one attempt: an inbound request, with its body and id, for the instance at Base.
type Call struct {
	In   *http.Request
	Body *inbound.Body
	ID   string
	Base *url.URL
	// Wait asks the instance, which is being woken, to keep the request until it is awake; see [control.HeaderWait].
	Wait bool
	// Tenant is whose request it is, as the instance is told; empty: it is not.
	Tenant string
	// Models are those that the requests inside of it may name ([control.HeaderModels]); nil: all.
	Models []string
	// Plain says that the function is a server of the user's own, whose answers' headers its clients get.
	Plain bool
	// Trusted says that the priority in the body counts.
	Trusted bool
	// Credentials passes those of the client on.
	Credentials bool
	// Kind is what an event stream that answers must end with.
	Kind api.Stream
	// Idle is how long the answer may pause once its first byte is there; 0: for ever. After
	// that Paused is called, once, which should end the context of the call.
	Idle   time.Duration
	Paused func()
	// MaxEvent bounds an event that is kept back until it is whole; of a longer one the pieces are passed on.
	// 0: 1 MiB.
	MaxEvent api.Bytes
	// Usage counts the tokens of the answer; nil: nobody does.
	Usage *relay.Usage
	// Asks has the instance say what it uses ([control.HeaderUsage]), and Counts says that the front door which holds the request counts too: it
	// gets what the instance says.
	Asks, Counts bool
	// State is what is known of the stream, for an instance that can go on with one of another; nil: it is not asked.
	State *relay.State
	// Passed is the state that the front door which holds the request asks for; empty: it does not. What is said of it goes to the front door.
	Passed string
	// Movable says that the request is no stream, and can be tried again whole where its instance gives way.
	Movable bool
	// Memory is charged what the answer takes beyond a small buffer; nil: nobody counts.
	Memory Memory
}

// Memory is an account of memory, as [relay.Memory] is.
type Memory = relay.Memory

// Failure is an attempt that ended before the client saw a byte.
type Failure struct {
	// Given says that the runtime may have seen the request: it may have caused the failure.
	Given bool
	// Code is the refusal's code, or the like.
	Code string
	// Err is what a client is told if nobody else answers.
	Err *api.Error
	// Cause is what only the operator is told: it may name addresses and paths. Nil: nothing.
	Cause error
}

// Error says what happened.
func (f *Failure) Error() string {
	if f.Cause != nil {
		return f.Err.Message + ": " + f.Cause.Error()
	}
	return f.Err.Message
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Send makes one attempt. It returns once the first bytes of the answer's body
// are there. The error is a *[Failure], or the cause of ctx's end.
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
		return nil, unanswered(err)
	}
	a := newAnswer(ctx, resp, call, header)
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

// charging is a transport that has large headers charged, as that of package localhttp does.
type charging interface {
	RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error)
}

// headerMemory is the memory that an answer's header takes, where that is large.
type headerMemory struct {
	Memory // nil: nobody counts

	ctx     context.Context
	charged int64
	refused bool
}

func (h *headerMemory) charge(n int64) error {
	err := h.Take(h.ctx, n)
	if h.refused = err != nil; err == nil {
		h.charged += n
	}
	return err // it comes back from the transport
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
		return t.RoundTripCharged(out, header.charge) // it is the transport's
	}
	return c.transport.RoundTrip(out) // it is the transport's
}

// request makes the outbound request.
func (call Call) request(ctx context.Context) *http.Request {
	in := call.In
	h := make(http.Header, len(in.Header)+4)
	relay.CopyHeader(h, in.Header)
	call.ours(h)
	return relay.Request(ctx, in, call.Base, h, call.Body)
}

// Head makes of a client's header that of the attempt, for a request that is not sent by [Client.Send].
func (call Call) Head(h http.Header) { call.ours(h) }

// ours takes out what is not for an instance, and says what we have to say.
func (call Call) ours(h http.Header) {
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

// unanswered turns an error of the transport into a failure.
func unanswered(err error) *Failure {
	if relay.Unreachable(err) {
		return &Failure{Code: api.CodeUnhealthy, Cause: err, Err: api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed,
			"the instance can't be reached")}
	}
	return broken(err)
}

// broken is the failure of a request that the runtime may have seen.
func broken(err error) *Failure {
	return &Failure{Given: true, Code: api.CodeRuntimeFailed, Cause: err, Err: api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed,
		"the instance failed before it answered")}
}

// failure tells an instance's refusal, and its runtime's failure, from an answer.
// A refusal that its client wants to find inside of an answer, in MLflow's
// envelope, has the status 200.
func (a *Answer) failure() *Failure {
	status, code := a.resp.StatusCode, a.resp.Header.Get(control.HeaderRefused)
	if failed := a.resp.Header.Get(control.HeaderFailed); failed != "" {
		e := a.error()
		e.Status = http.StatusBadGateway // in MLflow's envelope it is 200
		return &Failure{Given: true, Code: failed, Err: e}
	}
	switch {
	case status == http.StatusOK && code != "" && strings.HasSuffix(a.resp.Request.URL.Path, "/invocations"):
		return &Failure{Code: code, Err: api.Errorf(http.StatusServiceUnavailable, code, "the instance refused the request: %s", code)}
	case status != http.StatusBadGateway && status != http.StatusServiceUnavailable:
		return nil
	case code == "" && status != http.StatusBadGateway:
		return nil
	}
	e := a.error()
	if code != "" {
		return &Failure{Code: code, Err: e}
	}
	if e.Code == api.CodeRuntimeFailed {
		return &Failure{Given: true, Code: e.Code, Err: e}
	}
	return nil
}

type callKey struct{}

// WithCall says that ctx is of the call with that number, unique in the process: all attempts of one client's request
// share it, whatever id the client gave the request.
func WithCall(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, callKey{}, n)
}

// CallOf is the number of the call that ctx is of; 0: none is known.
func CallOf(ctx context.Context) uint64 {
	n, _ := ctx.Value(callKey{}).(uint64)
	return n
}
