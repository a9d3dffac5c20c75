package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Gate lets requests into the runtime. Enter returns the runtime's base URL and
// takes a place that Leave gives back, or refuses.
type Gate interface {
	Enter() (base string, refused *api.Error)
	// EnterBehind is Enter for a request that came behind the call that wakes the runtime. It
	// waits for limit at most. Where validated is not nil the runtime may get the request, in the
	// context inside, but its answer is good for nothing unless validated returns nil.
	EnterBehind(ctx context.Context, limit time.Duration) (base string, inside context.Context, validated func() *api.Error, refused *api.Error)
	// EnterProbe is Enter for a probe of the runtime, which may not be ready for requests.
	EnterProbe() (base string, refused *api.Error)
	Leave()
	// Moved is called for each part of an answer that comes from the runtime.
	Moved()
	// Unreachable is called for each request that got no connection to the runtime.
	Unreachable()
}

// Moves is a [Gate] that can have requests go on at other instances.
type Moves interface {
	// Movable says of a request that has entered whether it can; one of which it was said is not any more when it leaves.
	Movable(is bool)
	// Moving says whether those that can are being ended for that.
	Moving() bool
}

// Dialect is how the runtime's HTTP differs from the clients', see runtime.Dialect.
type Dialect interface {
	Request(path string, body *jsonfield.Object) *api.Error
	Failure(path string, status int, body []byte) []byte
}

// Mortal is a [Dialect] of a server that says so before it ends.
type Mortal interface {
	// Dying says whether an answer says that: whatever else is asked has the same answer.
	Dying(status int, body []byte) bool
}

// Config of a [Proxy].
type Config struct {
	Gate Gate
	// Dialect; nil: the runtime speaks as clients do.
	Dialect Dialect
	// Transport reaches the runtime.
	Transport http.RoundTripper
	// Host is what the runtime gets as the request's host; empty: what the client wrote, for
	// a runtime that guards itself against names that it does not know.
	Host string
	// Adapter returns the adapter that a request's body names as its model,
	// empty where it names none; nil: there are no adapters.
	Adapter func(body *jsonfield.Object) api.ModelName
	// Hold keeps such an adapter loaded until done is called, for a request that has its place, and loads
	// it first where it is not; nil: all are.
	Hold func(ctx context.Context, name api.ModelName) (done func(), err error)
	// Tenants says that the runtime is ours and may know whose a request is (control.HeaderTenant).
	Tenants bool
	// States says that the transport has the runtime go on with streams (control.HeaderState). In that header of an answer it says why the
	// state of one is not told.
	States bool
	// Prefixes is how the runtime keeps clients' prompts apart.
	Prefixes Prefixes
	// Credentials says that the runtime gets those of clients.
	Credentials bool
	// MediaHosts are those from which the runtime may fetch what requests name, in lower case, with a port that is not the scheme's own.
	MediaHosts []string
	// Inside says that requests are a handler's, which may say how urgent they are.
	Inside bool
	// Everything says that the runtime is no model server: all paths are its clients', and Dialect, Adapter, Hold, Host and Prefixes are not used.
	Everything bool
	// Single says that a connection to such a runtime carries one request; else an idle one is reused, as Knative's queue-proxy does.
	Single bool
	// Door reads bodies; nil: one of its own.
	Door *inbound.Door
	// Timeout bounds a request from its arrival to its last byte; 0: no bound.
	Timeout time.Duration
	// Observe gets the outcome of each request, from its goroutine; nil: nobody.
	Observe func(Outcome)
	// Logger; nil: none.
	Logger *slog.Logger
}

// Outcome is how one request went. Its times are from the request's arrival, 0
// where there was no such moment.
type Outcome struct {
	// Path is the pattern of its route.
	Path string
	// Adapter is the adapter that it named, empty: none.
	Adapter api.ModelName
	// Status is the answer's, or [api.StatusClientClosed].
	Status int
	// Code is the code of an error of ours; empty: none.
	Code string
	// Sent is when it went to the runtime, FirstByte when its answer began, Total when it was over.
	Sent, FirstByte, Total time.Duration
	// FirstToken and LastToken are when the first and the last text came: of a stream, and of any
	// answer in which the runtime says how long it generated.
	FirstToken, LastToken time.Duration
	// PromptTokens is the length of its prompt as the runtime says; 0: it does not.
	PromptTokens int
	// GeneratedTokens is what the runtime says, else the number of events with text.
	GeneratedTokens int
	// abort says that the connection must be aborted.
	abort bool
}

// Proxy is the handler of the client paths.
type Proxy struct {
	cfg        Config
	load       load
	moves      Moves       // nil: requests stay
	everything *transports // to a runtime that is no model server; nil: it is one
	moved      atomic.Pointer[[]byte]
}

// New makes a proxy.
func New(cfg Config) *Proxy {
	if cfg.Door == nil {
		cfg.Door = inbound.New(inbound.Config{})
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Outcome) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{cfg: cfg}
	p.moves, _ = cfg.Gate.(Moves)
	if cfg.Everything {
		p.everything = newTransports(cfg.Single)
	}
	return p
}

// ServeHTTP answers one request. It panics with [http.ErrAbortHandler] where the
// connection must not end well.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Everything {
		p.serveEverything(w, r)
		return
	}
	x := exchange{proxy: p, w: w, r: r, began: time.Now(), unread: relay.WriteDeadline{Timeout: unread}}
	found := false
	if x.path, found = api.FindPath(r.Method, r.URL.Path); !found {
		api.WriteErrorTo(x.w, x.r, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "%s %s is not served here", r.Method, r.URL.Path))
		return
	}
	x.outcome.Path = x.path.Pattern
	x.serve()
	x.unread.Clear(http.NewResponseController(w))
	if x.body != nil {
		x.body.Release()
	}
	x.outcome.Total = time.Since(x.began)
	p.cfg.Observe(x.outcome)
	if x.outcome.abort {
		panic(http.ErrAbortHandler)
	}
}

// exchange is one request and its answer.
type exchange struct {
	proxy   *Proxy
	w       http.ResponseWriter
	r       *http.Request
	path    api.ClientPath
	body    *inbound.Body // what was read of the client, charged; nil: nothing yet
	began   time.Time
	outcome Outcome
	meter   relay.Usage
	report  report
	live    live
	joins   bool   // the answer is asked for as a stream, and the client wants none
	stated  bool   // the runtime tells the state of the stream: where it is cut, the activator has it go on elsewhere
	untold  string // why it does not; empty: nobody has said
	state   relay.State
	movable bool // the gate knows that the request can go on elsewhere
	beside  bool // others were in the runtime when it went there
	unread  relay.WriteDeadline
}

func (x *exchange) serve() {
	if _, behind := x.r.Header[control.HeaderWait]; behind {
		delete(x.r.Header, control.HeaderWait)
		x.serveBehind()
		return
	}
	base, refused := x.proxy.cfg.Gate.Enter()
	if refused != nil {
		x.refuse(refused)
		return
	}
	defer x.proxy.cfg.Gate.Leave()
	body, err := x.prepare()
	if err != nil {
		x.fail(err)
		return
	}
	x.ask(x.r.Context(), base, body, nil)
}

// serveBehind serves a request that came behind a wake: it is made ready before it waits.
func (x *exchange) serveBehind() {
	body, err := x.prepare()
	if err != nil {
		x.fail(err)
		return
	}
	base, inside, validated, refused := x.proxy.cfg.Gate.EnterBehind(x.r.Context(), control.MostWait)
	if refused != nil {
		x.refuse(refused)
		return
	}
	defer x.proxy.cfg.Gate.Leave()
	x.ask(inside, base, body, validated)
}

// ask gives a request that has a place to the runtime, and passes the answer on. validated
// says what the answer is worth; nil: it is worth it.
func (x *exchange) ask(ctx context.Context, base string, body *jsonfield.Object, validated func() *api.Error) {
	if x.proxy.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, x.began.Add(x.proxy.cfg.Timeout))
		defer cancel()
	}
	if x.held() {
		done, err := x.proxy.cfg.Hold(ctx, x.outcome.Adapter)
		if err == nil {
			defer done()
			err = x.translate(body)
		}
		if err != nil {
			x.unheld(ctx, err)
			return
		}
	}
	x.live = x.proxy.load.begin(x.outcome.Adapter, len(body.Bytes()))
	defer x.live.end()
	x.beside = x.alongside()
	x.outcome.Sent = time.Since(x.began)
	defer x.moves(false)
	resp, err := x.proxy.cfg.Transport.RoundTrip(x.outbound(ctx, base, body))
	if err != nil {
		x.unanswered(ctx, err)
		return
	}
	defer resp.Body.Close()
	if validated != nil {
		if refused := validated(); refused != nil {
			x.refuse(refused)
			return
		}
	}
	if why := resp.Header.Get(control.HeaderState); why != "" && x.stated {
		x.stated, x.untold = false, why
		x.moves(false)
	}
	if resp.StatusCode == http.StatusServiceUnavailable && x.giveWay() {
		return
	}
	x.outcome.Status = resp.StatusCode
	x.meter.Style = x.path.Stream
	x.answer(ctx, resp)
	x.outcome.PromptTokens, x.outcome.GeneratedTokens = x.meter.Prompt, x.meter.Tokens()
	x.outcome.FirstToken, x.outcome.LastToken = x.meter.First, x.meter.Last
	if x.meter.First == 0 && x.meter.Decode > 0 && resp.StatusCode == http.StatusOK { // no stream, of a runtime that says how long it generated
		x.outcome.LastToken = x.outcome.FirstByte
		x.outcome.FirstToken = max(x.outcome.Sent, x.outcome.FirstByte-x.meter.Decode)
	}
	x.live.counted(x.meter.Prompt)
}

// answer passes the answer on by its kind: 1. a stream that the client gets as a whole; 2. a stream of events or
// lines; 3. a failure, in the words that clients know; 4. what it says of its models; 5. anything else.
func (x *exchange) answer(ctx context.Context, resp *http.Response) {
	kind, readable := resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding") == ""
	lines := strings.HasPrefix(kind, "application/x-ndjson") && x.path.Stream == api.StreamLines
	switch {
	case x.joins && resp.StatusCode == http.StatusOK && readable && strings.HasPrefix(kind, "text/event-stream"):
		x.join(ctx, resp)
	case lines && readable || strings.HasPrefix(kind, "text/event-stream"):
		style := x.path.Stream
		if lines != (style == api.StreamLines) || resp.StatusCode != http.StatusOK || !readable {
			style = api.StreamPlain // not a generation, or not ours to read
		}
		x.stream(ctx, resp, style)
	case resp.StatusCode >= http.StatusBadRequest && x.proxy.cfg.Dialect != nil && readable:
		x.failure(ctx, resp)
	case x.path.Describes && readable:
		x.describe(ctx, resp)
	default:
		x.pass(ctx, resp, resp.ContentLength >= 0 || strings.HasPrefix(kind, "application/json"))
	}
}

// log tells the operator what a client is told without its cause.
func (x *exchange) log(what string, err error) {
	x.proxy.cfg.Logger.Warn(what, "path", x.path.Pattern, "request", x.r.Header.Get("X-Request-Id"), "error", err)
}

// refuse answers that the runtime has not seen the request. The body is read
// first: a connection closed on an unread one can lose the answer.
func (x *exchange) refuse(err *api.Error) {
	if x.body == nil {
		x.body, _ = x.proxy.cfg.Door.Read(x.w, x.r, Client(x.r))
	}
	x.w.Header().Set(control.HeaderRefused, err.Code)
	x.fail(err)
}

// fail answers with an error of ours. Nothing was sent before. That the runtime failed a header says: not every API has codes.
func (x *exchange) fail(err error) {
	e := api.AsError(err)
	if e.Code == api.CodeRuntimeFailed {
		x.w.Header().Set(control.HeaderFailed, e.Code)
	}
	x.outcome.Status, x.outcome.Code = e.Status, e.Code
	if e.Status == api.StatusClientClosed {
		x.outcome.abort = true // there is nobody to answer
		return
	}
	api.WriteErrorTo(x.w, x.r, e)
}

// unheld answers a request whose adapter can't be had.
func (x *exchange) unheld(ctx context.Context, err error) {
	var refused *api.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &refused) {
		x.refuse(refused)
		return
	}
	x.fail(cmp.Or(ctx.Err(), err))
}

// unanswered deals with a request that got no answer: 1. it was speculative and cut off; 2. the client left or its
// time is up; 3. it gives way; 4. there was no connection, so the runtime has not seen it; 5. the
// runtime failed.
func (x *exchange) unanswered(ctx context.Context, err error) {
	var refused *api.Error
	switch {
	case errors.As(context.Cause(ctx), &refused):
		x.refuse(refused)
	case ctx.Err() != nil:
		x.fail(ctx.Err())
	case x.giveWay():
	case relay.Unreachable(err):
		x.proxy.cfg.Gate.Unreachable()
		x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the runtime can't be reached"))
	default:
		x.log("runtime failed before its answer", err)
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered"))
	}
}

// outbound makes the runtime's request out of the client's, whose headers it
// takes over.
func (x *exchange) outbound(ctx context.Context, base string, object *jsonfield.Object) *http.Request {
	h := x.r.Header
	localhttp.DropConnection(h)
	if state := h[control.HeaderState]; x.tellsState() && len(state) > 0 {
		x.stated = true
		x.state.From(state[0])
		x.moves(true)
	}
	x.private(h)
	if x.path.Describes {
		delete(h, "Accept-Encoding") // the answer is read here
	}
	body := relay.Body(x.body)
	if object.Changed() {
		body = relay.Bytes(object.Bytes())
	}
	out := relay.Request(ctx, x.r, &url.URL{Scheme: "http", Host: strings.TrimPrefix(base, "http://")}, h, body)
	if host := x.proxy.cfg.Host; host != "" {
		out.Host = host
	}
	return out
}
