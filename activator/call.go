package activator

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/stream"
)

const (
	headerTiming = "Server-Timing"
	// headerInstance names the instance that answers; in a cluster that is a pod, whose name begins with its revision's.
	headerInstance = "X-Rouse-Instance"
)

// maxGiven is how many runtimes one request may see fail before its first byte:
// a request that kills runtimes must not kill them all.
const maxGiven = 3

// call is one client's request from its first line to its last byte. It belongs
// to its goroutine, but for what comments guards.
type call struct {
	a      *Activator
	f      *function
	w      http.ResponseWriter
	r      *http.Request
	out    *http.ResponseController
	id     string
	peer   peer.Peer
	body   *inbound.Body
	req    parse.Request
	kind   stream.Style
	ollama bool // it is in Ollama's own API
	// adapter is what the instance should have loaded; empty for the model itself.
	adapter api.ModelName
	// group is what has f as one of its variants, where the client named the model of
	// all of them; nil: it named f.
	group    *target
	refusals int             // times that it went from one of them to another that was not refused
	ctx      context.Context // ends with the client, the deadline, or cancel
	cancel   context.CancelCauseFunc

	begun    time.Time // when the body was complete
	deadline time.Time // the client's own; zero: none
	attempts int       // times that it was sent to an instance
	given    int       // of these, times that a runtime may have seen it

	ticket uint64 // its place among those who wait for f

	// ahead is what went to an instance that is being woken; nil: nothing.
	ahead *ahead

	// While it waits.
	entry     *hold.Entry[slot]
	displaced []*hold.Entry[slot] // who had to leave the room for it, and is not told yet
	held      time.Time           // when it first entered the room; zero: it never did
	holdCtx   context.Context
	still     time.Duration // for how long its limit has stood still while it waited
	holdDone  context.CancelFunc
	timing    forward.Timing
	trace     *wakeTrace // that its answer ends; nil: none
	ends      *wakeTrace // the same, once the next that is written is the answer
	comment   comments

	wrote   time.Time // when the deadline of writes was last set
	guarded bool      // one is set
}

// serve serves one request for f, or where f is nil for the function that the body names.
func (a *Activator) serve(w http.ResponseWriter, r *http.Request, f *function) {
	c := &call{a: a, f: f, w: w, r: r, out: http.NewResponseController(w), id: requestID(r), begun: time.Now()}
	c.ollama = isOllama(r.URL.Path, f)
	c.comment.c = c
	w.Header()[forward.HeaderID] = []string{c.id}
	defer a.leave()
	if !a.come() {
		w.Header().Set("Connection", "close")
		c.refuse(shuttingDown())
		return
	}
	c.ctx, c.cancel = context.WithCancelCause(r.Context())
	defer c.cancel(nil)
	if err := c.timeLimit(); err != nil {
		c.refuse(err)
		return
	}
	c.peer = a.peers.Peer(r)
	var err error
	if c.body, err = a.door.Read(w, r, c.peer.Client); err != nil {
		c.refuse(err)
		return
	}
	c.begun = time.Now()
	defer c.body.Release()
	if err := c.understand(); err != nil {
		c.refuse(err)
		return
	}
	defer func() { c.f.part(c) }() // of the variant where it ends
	defer c.cutOff()
	defer c.expectNothing()
	defer c.comment.stop()
	c.run()
}

// understand reads what must be known of the body and finds the function.
func (c *call) understand() error {
	isJSON := modelPaths[c.r.URL.Path]
	if c.ollama {
		_, isJSON = ollamaPaths[c.r.URL.Path]
	}
	c.kind = stream.Of(c.r.URL.Path)
	var bad *api.Error
	switch {
	case isJSON && c.r.Method == http.MethodPost:
		c.req, bad = parse.JSON(c.body.Bytes())
	case strings.HasPrefix(c.r.Header.Get("Content-Type"), "multipart/form-data"):
		c.req, bad = parse.Form(c.r.Header.Get("Content-Type"), c.body.Bytes())
	case c.f == nil:
		return api.BadRequest("", "the Content-Type is %s: want multipart/form-data", quoteName(c.r.Header.Get("Content-Type")))
	}
	if bad != nil {
		return bad
	}
	if !c.peer.Trusted {
		c.req.Priority = 0
	}
	if c.ollama && c.req.Model == "" {
		c.req.Model = oldName(c.body.Bytes())
	}
	names := c.a.names.Load()
	if c.f != nil {
		c.adapter = names.adapter(c.req.Model, c.f)
		return orNil(c.f.speaks(c.r.URL.Path))
	}
	t, bad := names.find(c.req.Model, c.a.mayList(c.r))
	if bad != nil && c.ollama {
		t = names.untagged(c.req.Model)
	}
	if t == nil {
		return bad
	}
	f := t.pick()
	if len(t.variants) > 0 {
		c.group = t
	}
	c.f, c.adapter = f, names.adapter(c.req.Model, f)
	return orNil(t.lacks(f, c.r.URL.Path))
}

// orNil keeps an error that is none from being one.
func orNil(e *api.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// run gets the request answered: it waits for a slot, sends, and where the
// instance did not take it, does so again.
func (c *call) run() {
	for {
		s, err := c.f.acquire(c)
		if err != nil {
			if c.move(err) {
				continue
			}
			c.refuse(err)
			return
		}
		if s.trace != nil {
			c.trace = s.trace
		}
		stop := c.limit(s.limits.last, tookTooLong)
		answer, err := c.try(s)
		if err == nil {
			defer stop()
			c.answer(s, answer)
			return
		}
		stop()
		var failed *forward.Failure
		if !errors.As(err, &failed) { // the client left, or its time is up
			c.f.finish(s, false)
			c.refuse(err)
			return
		}
		c.f.giveBack(s, failed.Code)
		if failed.Given {
			c.given++
		}
		if c.given >= maxGiven {
			last := *failed.Err
			last.NoRetry = true
			c.a.log.Warn("request failed", "request", c.id, "function", c.f.name, "instance", s.instance.ID, "error", failed)
			c.refuse(&last)
			return
		}
		c.f.metrics.Retried(failed.Code)
		c.a.log.Debug("attempt failed", "request", c.id, "function", c.f.name, "instance", s.instance.ID, "error", failed)
	}
}

// try sends the request to one instance and waits for the first bytes of its answer.
func (c *call) try(s slot) (*forward.Answer, error) {
	c.attempts++
	c.comment.dispatched()
	sent := time.Now()
	stop := c.limit(s.limits.first, beganTooLate)
	answer, done, err := c.went(s)
	if !done {
		answer, err = c.a.client.Send(c.ctx, *c.attempt(s.base, s.limits))
	}
	stop()
	c.timing.First = time.Since(sent)
	if c.trace != nil {
		c.trace.sent, c.trace.answered = sent, sent.Add(c.timing.First)
	}
	return answer, err
}

// attempt is what is sent to the instance at base.
func (c *call) attempt(base *url.URL, l limits) *forward.Call {
	attempt := &forward.Call{In: c.r, Body: c.body, ID: c.id, Base: base, Kind: c.kind, MaxEvent: c.a.cfg.MaxEvent, Memory: c.body,
		Tenant: c.peer.Tenant(), Trusted: c.peer.Trusted, Credentials: l.credentials}
	if idle := l.idle; idle > 0 {
		attempt.Idle, attempt.Paused = idle, func() { c.tooLate(idle, pausedTooLong) }
	}
	return attempt
}

// answer hands the instance's answer to the client and gives the slot back.
func (c *call) answer(s slot, answer *forward.Answer) {
	c.f.metrics.Timing(c.timing)
	status := answer.Status()
	err := c.copy(s, answer)
	// Before the slot goes to the next: a runtime that still generates has none free.
	if err != nil {
		c.cancel(err)
	}
	answer.Close()
	c.f.finish(s, true)
	var e *api.Error
	if errors.As(err, &e) {
		status = e.Status
		c.a.log.Error("answer cut", "request", c.id, "function", c.f.name, "instance", s.instance.ID, "error", err)
	} else if err != nil {
		status = api.StatusClientClosed
	}
	c.f.metrics.Done(status, time.Since(c.begun))
	if errors.Is(err, errAbort) || status == api.StatusClientClosed {
		// The only way to tell the client of a body that has no events; and one who
		// seems to have left may have ended only what it sends, and still read.
		panic(http.ErrAbortHandler)
	}
}

// errAbort marks a cut answer whose client must be told by cutting its connection.
var errAbort = errors.New("abort the client's connection")

// copy writes the answer. The error wraps an *[api.Error] if the answer was cut,
// [errAbort] too if the client does not know yet, and is another if the client left.
func (c *call) copy(s slot, answer *forward.Answer) error {
	started := c.comment.stop()
	c.ends = c.trace
	if started {
		return c.copyLate(answer)
	}
	h := c.w.Header()
	answer.Header(h)
	if answer.Events() {
		h.Del("Content-Length") // an error event may have to follow
	}
	h[headerTiming] = []string{c.timing.String()}
	h[headerInstance] = []string{string(s.instance.ID)}
	c.w.WriteHeader(answer.Status())
	return c.end(answer, answer.Copy(c))
}

// copyLate writes the answer where the header is sent: the client expects events, whatever came.
func (c *call) copyLate(answer *forward.Answer) error {
	defer c.w.Header().Set(headerTiming, c.timing.String())
	var e *api.Error
	switch {
	case answer.Status()/100 != 2:
		e = answer.Error()
	case !answer.Events():
		e = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered a stream with something that is no event stream")
	default:
		if _, err := c.Write([]byte(": server-timing " + c.timing.String() + "\n\n")); err != nil {
			return err
		}
		return c.end(answer, answer.Copy(c))
	}
	return c.event(e, 0)
}

// end turns the end of a copied answer into an error, and tells a client that reads events.
func (c *call) end(answer *forward.Answer, err error) error {
	if err == nil || errors.Is(err, forward.ErrClient) {
		return err
	}
	e := api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut (request %s)", c.id)
	if cause := context.Cause(c.ctx); cause != nil {
		if !errors.As(cause, &e) {
			return cause // the client left
		}
	}
	switch {
	case c.ollama && lines(c.w.Header()):
		c.kind = stream.Lines
	case !answer.Events():
		return errors.Join(e, err, errAbort)
	}
	return errors.Join(e, err, c.event(e, answer.Next()))
}

// event writes an error as the last event of a stream, with the number next.
func (c *call) event(e *api.Error, next int) error {
	if _, err := c.Write(c.kind.Error(e, next)); err != nil {
		return err
	}
	return c.Flush()
}

// traced is e with the request's id where the client is not told why: its operator finds that by it.
func (c *call) traced(e *api.Error) *api.Error {
	switch e.Code {
	case api.CodeStartFailed, api.CodeRuntimeFailed, api.CodeUnhealthy:
		t := *e
		t.Message += " (request " + c.id + ")"
		return &t
	}
	return e
}

// refuse answers with an error that is Rouse's own.
func (c *call) refuse(err error) {
	e := c.traced(api.AsError(err))
	m := c.a.nobody
	if c.f != nil {
		m = c.f.metrics
	}
	m.Refused(e.Code)
	m.Done(e.Status, time.Since(c.begun))
	switch started := c.comment.stop(); {
	case started:
		c.w.Header().Set(headerTiming, c.timing.String())
		_ = c.event(e, 0) // the client may have left: nothing to do about it
	default:
		if !c.held.IsZero() {
			c.w.Header().Set(headerTiming, c.timing.String())
		}
		if !c.ollama && isOllama(c.r.URL.Path, nil) { // a function's own path of that name
			api.WriteError(c.w, e)
			return
		}
		api.WriteErrorTo(c.w, c.r, e)
	}
}

// comments says whether the client reads server-sent comments.
func (c *call) comments() bool { return c.req.Stream && c.kind != stream.Plain }
