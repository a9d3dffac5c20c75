package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
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

// Gate admits requests to the runtime, see supervise.Gate.
type Gate interface {
	Enter() (base string, refused *api.Error)
	// See supervise.Gate.
	EnterBehind(ctx context.Context, limit time.Duration) (base string, inside context.Context, validated func() *api.Error, refused *api.Error)
	EnterProbe() (base string, refused *api.Error)
	Leave()
	Moved()
	Unreachable()
}

// Moves is a [Gate] that can move requests to other instances, see supervise.Gate.
type Moves interface {
	Movable(is bool)
	Moving() bool
}

// Turns is a [Gate] in which requests wait for their turn, see supervise.Gate.
type Turns interface {
	EnterInTurn(ctx context.Context, t control.Turn, beforeWait func() error) (base string, refused *api.Error, err error)
	GivesWay(t control.Turn, begins time.Duration) bool
	LeaveTurn(t control.Turn, cost float64)
}

var withoutTurn = control.Turn{Client: control.NoClient, Most: control.MaxTurn, Cost: 1, Quiet: true}

// Dialect is a part of runtime.Dialect.
type Dialect interface {
	Request(path string, body *jsonfield.Object) *api.Error
	Failure(path string, status int, body []byte) []byte
}

// Mortal is a [Dialect] of a server that announces its end.
type Mortal interface {
	// Dying reports whether an answer announces the end; then all requests get the same answer.
	Dying(status int, body []byte) bool
}

// Config configures a [Proxy].
type Config struct {
	Gate Gate
	// Dialect converts requests and failures; nil: no conversion.
	Dialect   Dialect
	Transport http.RoundTripper
	// Host is the Host header for the runtime; empty: the client's.
	Host string
	// Adapter returns the adapter that a body names as its model, or ""; nil: there are no adapters.
	Adapter func(body *jsonfield.Object) api.ModelName
	// Hold loads an adapter if need be, and keeps it loaded until done is called. The request has a slot. Nil: all are loaded.
	Hold func(ctx context.Context, name api.ModelName) (done func(), err error)
	// Tenants says that the runtime is ours: it may know a request's tenant, and reports the usage of a request whose client left.
	Tenants bool
	// States says that the transport lets the runtime continue streams. It says in an answer's control.HeaderState why it does not report
	// the state.
	States      bool
	Prefixes    Prefixes
	Credentials bool // clients' are passed to the runtime
	// MediaHosts are the hosts from which the runtime may fetch media: lower case, with a port other than the scheme's default.
	MediaHosts []string
	// Inside says that the requests are a handler's, which is trusted.
	Inside bool
	// Everything says that the runtime is no model server. Dialect, Adapter, Hold, Host and Prefixes are not used.
	Everything bool
	// Single says that each connection to such a runtime carries one request.
	Single bool
	Door   *inbound.Door
	// Timeout bounds a request from its arrival to its last byte; 0: no bound.
	Timeout time.Duration
	// Observe receives the outcome of each request, in its goroutine.
	Observe func(Outcome)
	Logger  *slog.Logger
}

// Outcome is the result of one request. Its times count from the request's arrival; 0: it did not happen.
type Outcome struct {
	Path    string // its route's pattern
	Adapter api.ModelName
	// Status may be [api.StatusClientClosed].
	Status int
	// Code is of an error of ours.
	Code string
	// Sent is the time to the runtime, FirstByte to the answer's begin.
	Sent, FirstByte time.Duration
	// FirstToken and LastToken are set for streams, and for answers with the runtime's generation time.
	FirstToken, LastToken time.Duration
	// PromptTokens is as the runtime reports it; 0: unknown.
	PromptTokens int
	// GeneratedTokens is the runtime's count, else the number of events with text.
	GeneratedTokens int
	abort           bool
}

// Proxy is the handler of the client paths.
type Proxy struct {
	cfg        Config
	load       load
	moves      Moves // nil: requests can't move
	everything *transports
	moved      atomic.Pointer[[]byte]
	waiting    waiting
}

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
	p := &Proxy{cfg: cfg, load: load{adapters: map[api.ModelName]int{}, held: map[api.ModelName]int{}}}
	p.moves, _ = cfg.Gate.(Moves)
	p.everything = newTransports(cfg.Single)
	return p
}

// ServeHTTP answers one request. It panics with [http.ErrAbortHandler] if the connection must be aborted.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Everything || r.URL.Path == api.PathRealtime && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		p.serveEverything(w, r)
		return
	}
	x := exchange{Proxy: p, w: w, r: r, began: time.Now()}
	x.unread.Timeout = unread
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
	x.outcome.PromptTokens, x.outcome.GeneratedTokens = x.meter.Prompt, x.meter.Tokens()
	p.cfg.Observe(x.outcome)
	if x.outcome.abort {
		panic(http.ErrAbortHandler)
	}
}

type exchange struct {
	*Proxy
	w       http.ResponseWriter
	r       *http.Request
	path    api.ClientPath
	body    *inbound.Body // charged; nil: nothing was read
	began   time.Time
	outcome Outcome
	meter   relay.Usage
	report  report
	live    live
	joins   bool   // the answer is asked for as a stream, and the client wants none
	stated  bool   // the runtime reports the stream's state
	untold  string // why the state is not reported
	state   relay.State
	movable bool // the gate knows that the request can move
	beside  bool // other requests were in the runtime when this one was sent
	unread  relay.WriteDeadline
	turn    control.Turn
	turns   Turns // that it has entered in; nil: it may not give way
}

func (x *exchange) serve() {
	var object *jsonfield.Object
	prepare := func() (err error) {
		if object == nil {
			object, err = x.prepare()
		}
		return err
	}
	p, refused, err := x.enter(false, prepare)
	if refused != nil {
		x.refuse(refused)
		return
	}
	if err != nil {
		x.fail(err)
		return
	}
	defer p.leave()
	if err := prepare(); err != nil {
		x.fail(err)
		return
	}
	x.ask(p.inside, p.base, object, p.validated)
}

type place struct {
	base      string
	inside    context.Context   // of the runtime's request
	validated func() *api.Error // why the answer may not be used; nil: it may
	leave     func()
}

// enter takes a slot: 1. for a probe; 2. behind the call that wakes the runtime; 3. in turn; 4. now or never.
func (x *exchange) enter(probe bool, beforeWait func() error) (p place, refused *api.Error, err error) {
	gate := x.cfg.Gate
	p.inside, p.leave = x.r.Context(), gate.Leave
	turn := control.TakeTurn(x.r.Header)
	turns, ordered := gate.(Turns)
	if turn.Client == 0 {
		turn = withoutTurn
	}
	_, behind := x.r.Header[control.HeaderWait]
	delete(x.r.Header, control.HeaderWait)
	switch {
	case probe: // 1.
		p.base, refused = gate.EnterProbe()
	case behind: // 2.
		if err = beforeWait(); err == nil {
			p.base, p.inside, p.validated, refused = gate.EnterBehind(p.inside, control.MostWait)
		}
	case ordered: // 3.
		p.base, refused, err = x.enterInTurn(turns, turn, beforeWait)
		p.leave = func() { turns.LeaveTurn(turn, x.cost(turn)) }
		x.turn, x.turns = turn, turns
	default: // 4.
		p.base, refused = gate.Enter()
	}
	if err != nil && api.AsError(err).Code == api.CodeHoldFull { // no memory for a body that waits
		refused, err = api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "%v", err), nil
	}
	return p, refused, err
}

// enterInTurn tells the activator when a wait begins and ends, unless the turn is quiet.
func (x *exchange) enterInTurn(turns Turns, turn control.Turn, beforeWait func() error) (base string, refused *api.Error, err error) {
	var waits time.Time
	tell := func(ms int64) {
		if !turn.Quiet {
			x.w.Header()[control.HeaderQueue] = []string{strconv.FormatInt(ms, 10)}
			x.w.WriteHeader(http.StatusProcessing)
		}
	}
	base, refused, err = turns.EnterInTurn(x.r.Context(), turn, func() error {
		err := beforeWait()
		if err == nil {
			waits = time.Now()
			x.waiting.begin()
			tell(0)
		}
		return err
	})
	if !waits.IsZero() {
		x.waiting.end()
		waited := time.Since(waits)
		x.began = x.began.Add(waited) // its limits begin now
		tell(waited.Milliseconds() + 1)
	}
	return base, refused, err
}

// cost returns the actual cost, in input tokens. An answer whose tokens are unknown has cost what was expected.
func (x *exchange) cost(t control.Turn) float64 {
	cost := control.Cost(api.Tokens(x.meter.Prompt), api.Tokens(x.meter.Tokens()))
	if cost == 0 && x.outcome.Sent > 0 {
		return t.Cost
	}
	return cost
}

func (x *exchange) ask(ctx context.Context, base string, body *jsonfield.Object, validated func() *api.Error) {
	if x.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, x.began.Add(x.cfg.Timeout))
		defer cancel()
	}
	if x.held() {
		x.load.count(x.load.held, x.outcome.Adapter, 1)
		done, err := x.cfg.Hold(ctx, x.outcome.Adapter)
		x.load.count(x.load.held, x.outcome.Adapter, -1)
		if err == nil {
			defer done()
			err = x.translate(body)
		}
		if err != nil {
			x.unheld(ctx, err)
			return
		}
	}
	x.live = x.load.begin(x.outcome.Adapter, len(body.Bytes()))
	defer x.live.end()
	x.beside = x.alongside()
	x.outcome.Sent = time.Since(x.began)
	defer x.moves(false)
	resp, err := x.cfg.Transport.RoundTrip(x.outbound(ctx, base, body))
	if err != nil {
		x.unanswered(ctx, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == api.StatusClientClosed && ctx.Err() != nil {
		x.meter.Tell(resp.Header.Get(control.HeaderUsage))
		x.fail(ctx.Err())
		return
	}
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
	x.outcome.FirstToken, x.outcome.LastToken = x.meter.First, x.meter.Last
	if x.meter.First == 0 && x.meter.Decode > 0 && resp.StatusCode == http.StatusOK { // no stream
		x.outcome.LastToken = x.outcome.FirstByte
		x.outcome.FirstToken = max(x.outcome.Sent, x.outcome.FirstByte-x.meter.Decode)
	}
	x.live.counted(x.meter.Prompt)
}

func (x *exchange) answer(ctx context.Context, resp *http.Response) {
	kind, readable := resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding") == ""
	lines := strings.HasPrefix(kind, "application/x-ndjson") && x.path.Stream == api.StreamLines
	switch {
	case x.joins && resp.StatusCode == http.StatusOK && readable && strings.HasPrefix(kind, "text/event-stream"):
		x.join(ctx, resp)
	case lines && readable || strings.HasPrefix(kind, "text/event-stream"):
		style := x.path.Stream
		if lines != (style == api.StreamLines) || resp.StatusCode != http.StatusOK || !readable {
			style = api.StreamPlain // not a generation, or not readable
		}
		x.stream(ctx, resp, style)
	case resp.StatusCode >= http.StatusBadRequest && x.cfg.Dialect != nil && readable:
		x.failure(ctx, resp)
	case x.path.Describes && readable:
		x.describe(ctx, resp)
	default:
		x.pass(ctx, resp, resp.ContentLength >= 0 || strings.HasPrefix(kind, "application/json"))
	}
}

func (x *exchange) log(what string, err error) {
	x.cfg.Logger.Warn(what, "path", x.path.Pattern, "request", x.r.Header.Get("X-Request-Id"), "error", err)
}

// refuse answers that the runtime has not seen the request. It reads the body first: closing a connection with unread data can lose the
// answer. A body for a runtime that is no model server may have no end, and is left to the server.
func (x *exchange) refuse(err *api.Error) {
	if x.body == nil && !x.cfg.Everything {
		x.body, _ = x.cfg.Door.Read(x.w, x.r, Client(x.r))
	}
	x.w.Header().Set(control.HeaderRefused, err.Code)
	x.fail(err)
}

// fail answers with an error of ours; nothing was sent before. Not every API has error codes, so a header marks a failure of the runtime.
func (x *exchange) fail(err error) {
	e := api.AsError(err)
	if e.Code == api.CodeRuntimeFailed {
		x.w.Header().Set(control.HeaderFailed, e.Code)
	}
	x.outcome.Status, x.outcome.Code = e.Status, e.Code
	if e.Status == api.StatusClientClosed {
		if !x.report.tells || x.meter.Prompt+x.meter.Tokens() == 0 {
			x.outcome.abort = true
			return
		}
		x.w.Header()[control.HeaderUsage] = []string{x.meter.Told()}
	}
	api.WriteErrorTo(x.w, x.r, e)
}

func (x *exchange) unheld(ctx context.Context, err error) {
	var refused *api.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &refused) {
		x.refuse(refused)
		return
	}
	x.fail(cmp.Or(ctx.Err(), err))
}

func (x *exchange) unanswered(ctx context.Context, err error) {
	var refused *api.Error
	switch {
	case errors.As(context.Cause(ctx), &refused):
		x.refuse(refused)
	case ctx.Err() != nil:
		x.fail(ctx.Err())
	case x.giveWay():
	case relay.Unreachable(err):
		x.cfg.Gate.Unreachable()
		x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the runtime can't be reached"))
	default:
		x.log("runtime failed before its answer", err)
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered"))
	}
}

// outbound takes the client's headers over.
func (x *exchange) outbound(ctx context.Context, base string, object *jsonfield.Object) *http.Request {
	h := x.r.Header
	localhttp.DropNamed(h, h["Connection"])
	maps.DeleteFunc(h, func(name string, _ []string) bool { return localhttp.PerConnection(name) })
	if state := h[control.HeaderState]; x.tellsState() && len(state) > 0 {
		x.stated = true
		x.state.From(state[0])
		x.moves(true)
	}
	x.private(h)
	if x.path.Describes {
		delete(h, "Accept-Encoding") // read here
	}
	body := relay.Body(x.body)
	if object.Changed() {
		body = relay.Bytes(object.Bytes())
	}
	base = strings.TrimPrefix(base, "http://")
	server, _, _ := strings.Cut(base, "/")
	out := relay.Request(ctx, x.r, &url.URL{Scheme: "http", Host: server}, h, body)
	if prefix := base[len(server):]; prefix != "" { // an application of Ray Serve has a path of its own
		out.URL.Path = prefix + out.URL.Path
		if out.URL.RawPath != "" {
			out.URL.RawPath = prefix + out.URL.RawPath
		}
	}
	if host := x.cfg.Host; host != "" {
		out.Host = host
	}
	return out
}
