package activator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// maxGiven bounds how many runtimes may fail on one request before its first byte: a request that kills runtimes must
// not kill them all.
const maxGiven = 3

// call is one client's request from its first line to its last byte: the request, its wait, its attempts at
// instances, and the reply. It belongs to the request's goroutine, except for what its parts say is guarded
// otherwise.
type call struct {
	a      *Activator
	ctx    context.Context // ends with the client, the deadline, or cancel
	cancel context.CancelCauseFunc

	f *function // the function that serves it; nil: not known yet
	// group is the model with variants that the client named, of which f is one; nil: the client named f.
	group      *target
	atOnce     bool       // refuse it rather than wait
	background bool       // it uses only spare capacity, and is no demand
	refusals   int        // the number of moves to another variant after a refusal
	trace      *wakeTrace // the trace that its answer ends; nil: none
	woken      api.Trace  // the trace of the wake that it waited for; zero: none

	req    request
	holder holder
	wait   waiting
	sent   delivery
	reply  reply
}

// serve serves one request for f, or for the function that the body names if f is nil. With atOnce, it does not wait
// for a slot. A held request blocks in here: see [call.end].
func (a *Activator) serve(w http.ResponseWriter, r *http.Request, f *function, atOnce bool) {
	c := a.newCall(w, r, f, atOnce)
	defer c.end()
	if err := c.begin(); err != nil {
		c.refuse(err)
		return
	}
	c.run()
}

func (a *Activator) newCall(w http.ResponseWriter, r *http.Request, f *function, atOnce bool) *call {
	c := &call{a: a, f: f, atOnce: atOnce}
	if l := laterOf(r.Context()); l != nil {
		c.background = l.terms.Background
	}
	c.req.in, c.req.id, c.req.via, c.req.ollama, c.req.begun = r, requestID(r), forward.ViaOf(r.Context()), isOllama(r.URL.Path, f), time.Now()
	c.req.arrived, c.req.plain = c.req.begun, f != nil && f.plain()
	c.reply.w, c.reply.out, c.reply.id, c.reply.ollama = w, http.NewResponseController(w), c.req.id, c.req.ollama
	c.reply.unread.Timeout, c.reply.unread.Buffered = a.cfg.WriteTimeout, relay.Buffered(r)
	c.reply.comment.reply, c.reply.comment.a = &c.reply, a
	identify(w, r, c.req.id)
	return c
}

// begin does everything that comes before waiting for a slot. After an error only [call.end] is left to do.
func (c *call) begin() error {
	if !c.a.arrive() {
		c.reply.w.Header().Set("Connection", "close")
		return shuttingDown()
	}
	r := c.req.in
	c.ctx, c.cancel = context.WithCancelCause(forward.WithCall(r.Context(), c.a.calls.Add(1)))
	if err := c.read(); err != nil {
		return err
	}
	if err := c.permit(c.find()); err != nil {
		return err
	}
	return nil
}

// end releases everything that the call has acquired so far. It is one function rather than many defers: those would
// stay on the stack while the request waits, and the stack is most of a held request's memory.
func (c *call) end() {
	c.reply.comment.stop()
	c.reply.unread.Clear(c.reply.out)
	c.sent.cutOff()
	if c.f != nil { // the last variant
		c.f.forget(c)
	}
	if c.req.body != nil {
		c.req.body.Release()
	}
	c.settle()
	if c.cancel != nil {
		c.cancel(nil)
	}
	c.logAccess()
	c.traceRequest()
	c.a.leave()
}

// read reads the whole request. If it returns nil, the caller must release the body.
func (c *call) read() (err error) {
	limit, err := c.req.timeLimit()
	if err != nil {
		return err
	}
	c.limit(limit, clientsLimit)
	if err := c.req.objectives(); err != nil {
		return err
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	in := c.req.in
	if c.req.streams() {
		in = bodiless(in)
	}
	c.req.body, err = c.a.door.Read(c.reply.w, in, c.req.peer.Client)
	if err == nil {
		c.req.begun = time.Now()
	}
	return err // an *api.Error
}

// find parses the body and finds the function.
func (c *call) find() *api.Error {
	if c.req.plain {
		return nil
	}
	if err := c.req.parse(c.f == nil); err != nil {
		return err
	}
	c.reply.style, c.reply.usage.Style = c.req.style, c.req.style
	path, names := c.req.in.URL.Path, c.a.names.Load()
	if c.f != nil {
		c.req.adapter = names.adapter(c.req.Model, c.f)
		return c.f.speaks(path)
	}
	if c.req.Stored != "" && path == "/v1/responses" {
		return c.a.notStored(c.req.Stored)
	}
	t, bad := names.find(c.req.Model, c.mayList())
	if bad != nil && c.req.Model == "" && path == pathInvocations {
		bad.Message = "the request does not say which model it is for: add the field model, or POST to /serving-endpoints/NAME/invocations (GET /v1/models lists the names)"
	}
	if bad != nil && c.req.ollama {
		t = names.untagged(c.req.Model)
	}
	if t == nil {
		return bad
	}
	f := t.pick()
	if len(t.variants) > 0 {
		c.group = t
	}
	c.f, c.req.adapter = f, names.adapter(c.req.Model, f)
	return t.lacks(f, path)
}

// run gets the request answered: it waits for a slot and sends, and repeats both if the instance did not accept the
// request.
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
		begun := c.reply.answered != 0 || c.atOnce && control.KnownState(c.req.in.Header.Get(control.HeaderState))
		if begun && !s.limits.resumes { // the function was changed, or this is another variant: the client would get the whole answer again
			c.f.finish(s, false, c.req.Input, 0)
			c.refuse(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "%s (request %s)", api.NotGoneOn("the function that is there now"), c.req.id))
			return
		}
		if s.trace != nil {
			c.trace, c.woken = s.trace, s.trace.root.Trace()
		}
		c.a.picks.add(c, s)
		done, err := c.send(s)
		if done {
			return
		}
		if err != nil {
			c.refuse(err)
			return
		}
	}
}

// send sends the request to the instance of s, and the answer to the client; done reports that there was an answer.
// An error is for the client; nil without done means that the request goes elsewhere.
func (c *call) send(s *slot) (done bool, err error) {
	stop := c.limit(s.limits.last, tookTooLong)
	defer stop()
	if c.req.streams() {
		return c.stream(s)
	}
	answer, err := c.try(s)
	if err != nil {
		return false, c.failed(s, err)
	}
	return c.answer(s, answer), nil
}

// failed gives back the slot of an attempt that failed with err. It returns the error for the client, or nil if the
// request goes elsewhere.
func (c *call) failed(s *slot, err error) error {
	var failed *forward.Failure
	if !errors.As(err, &failed) { // the client left, or its time is up
		c.abandon(s)
		used := c.reply.used(c.req.Input)
		c.f.finish(s, false, used.input, used.output)
		return err
	}
	c.f.giveBack(s, failed.Code)
	c.sent.last = failed.Code
	if failed.Code == api.CodeMoved {
		c.gaveWay(s)
		return nil
	}
	if failed.Given {
		c.sent.given++
	}
	if failed.Given && c.atOnce { // the front door that holds the request decides whether and where to retry
		return failed.Err
	}
	if c.sent.given >= maxGiven {
		last := *failed.Err
		last.NoRetry = true
		c.a.log.Warn("request failed", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "error", failed)
		return &last
	}
	c.f.metrics.Retried(failed.Code)
	c.a.log.Debug("attempt failed", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "error", failed)
	return nil
}

// abandon estimates the work that the instance of s did for a request whose answer is not read to its end. For a
// stream the work is known, as far as the stream came.
func (c *call) abandon(s *slot) {
	c.reply.instance, c.reply.estimate.input = s.instance.ID, c.req.Input
	if (c.req.prompts || c.req.style != api.StreamPlain) && !c.streamed() {
		c.reply.estimate.output = c.f.made(s, &c.req)
	}
}

// answer copies the instance's answer to the client and gives the slot back. done is false if the answer was cut and
// another instance resumes it.
func (c *call) answer(s *slot, answer *forward.Answer) (done bool) {
	if t := c.reply.timing; c.reply.answered == 0 {
		c.f.metrics.Timing(t)
	} else {
		c.f.metrics.Waited(t.Since(c.sent.before))
	}
	status := answer.Status()
	started := c.reply.comment.stop()
	c.reply.ends, c.trace = c.trace, nil
	c.reply.resumes = c.sent.resumed < maxResumed
	err := c.reply.copy(c.ctx, s.instance.ID, answer, started)
	if c.reply.answered/100 != 2 { // otherwise the client has part of an answer, whatever happened to the rest
		c.reply.answered, c.reply.instance = status, s.instance.ID
	}
	if errors.Is(err, errGoesOn) || errors.Is(err, errMoved) {
		answer.Close()
		c.elsewhere(s, err)
		return false
	}
	// Close before the slot is reused: a runtime that still generates has no free slot.
	if err != nil {
		c.cancel(err)
	}
	answer.Close()
	if err != nil {
		c.abandon(s)
	}
	used := c.reply.used(c.req.Input)
	c.f.finish(s, true, used.input, used.output)
	c.f.countPrompt(&c.req, api.Tokens(c.reply.usage.Prompt))
	c.spend(c.reply.instance, used)
	var e *api.Error
	if errors.As(err, &e) {
		status, c.reply.code = e.Status, e.Code
		c.a.log.Error("answer cut", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "error", err)
	} else if err != nil {
		status, c.reply.code = api.StatusClientClosed, api.CodeClientLeft
	}
	c.reply.status = status
	c.f.metrics.Done(status, time.Since(c.req.begun))
	if errors.Is(err, errAbort) || status == api.StatusClientClosed {
		// Without events, aborting the connection is the only way to tell the client. A client that seems to have
		// left may only have closed its sending side, and still read.
		panic(http.ErrAbortHandler)
	}
	return true
}

// refuse answers with one of Rouse's own errors.
func (c *call) refuse(err error) {
	e, m := api.AsError(err), c.a.unrouted
	if c.f != nil {
		e, m = c.f.explain(e, c.req.in), c.f.metrics
	}
	e = withID(e, c.req.id)
	c.reply.status, c.reply.code = e.Status, e.Code
	c.spend(c.reply.instance, c.reply.used(c.req.Input)) // for a client that has left, or a stream that should have been resumed
	m.Refused(e.Code)
	m.Done(e.Status, time.Since(c.req.begun))
	started, h := c.reply.comment.stop(), c.reply.w.Header()
	if started {
		h.Set(headerTiming, c.reply.timing.String())
		_ = c.reply.event(e, c.reply.next) // the client may have left: nothing to do about it
		return
	}
	if reason := dropped[e.Code]; reason != "" {
		h.Set(headerDropped, reason)
	}
	if !c.wait.since.IsZero() {
		h.Set(headerTiming, c.reply.timing.String())
	}
	switch {
	case c.atOnce && c.sent.given > 0:
		h.Set(control.HeaderFailed, e.Code)
	case c.atOnce && e.Status == http.StatusServiceUnavailable:
		h.Set(control.HeaderRefused, e.Code)
	}
	if !c.req.ollama && isOllama(c.req.in.URL.Path, nil) { // a function's own path of that name
		api.WriteError(c.reply.w, e)
		return
	}
	api.WriteErrorTo(c.reply.w, c.req.in, e)
}
