package activator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// maxGiven bounds the runtimes that may fail on one request before its first byte: it must not kill them all.
const maxGiven = 3

// call is one client's request. It belongs to the request's goroutine, but for what its parts guard otherwise.
type call struct {
	a      *Activator
	ctx    context.Context // ends with the client, the deadline, or cancel
	cancel context.CancelCauseFunc

	f *queue.Function // nil: not known yet
	// group is the model with variants that the client named, if any.
	group      *target
	atOnce     bool // refuse it rather than wait
	background bool // only spare capacity, and no demand
	preferred  bool // want names the best instances
	refusals   int
	// Further models that may answer in place of the named one, once fell is set.
	fallbacks []api.ModelName
	fell      bool
	insteadOf string // the named model and why it did not answer, once another is asked: "big: start_failed"

	req    request
	holder holder
	want   queue.Want
	sent   delivery
	reply  reply
}

// serve serves one request for f, or, if f is nil, for the function that the body names. A held request blocks in
// here.
//
//  1. parse: read the request, find its function
//  2. permit: check the client's key
//  3. acquire a slot, after a wait in the function's queue if none is free
//  4. send the request to the slot's instance; if that did not accept it, go back to 3, if need be at a fallback
//  5. answer the client
func (a *Activator) serve(w http.ResponseWriter, r *http.Request, f *queue.Function, atOnce bool) {
	c := a.newCall(w, r, f, atOnce)
	defer c.release()
	if err := c.parse(); err != nil {
		c.refuse(err)
		return
	}
	if err := c.permit(c.find()); err != nil {
		c.refuse(err)
		return
	}
	c.describeWant()
	for {
		s, err := c.acquire()
		if err != nil {
			if c.moveToVariant(err) || c.fallBack(err) {
				continue
			}
			c.refuse(err)
			return
		}
		answered, err := c.send(s)
		if answered {
			return
		}
		if err != nil {
			if c.fallBack(err) {
				continue
			}
			c.refuse(err)
			return
		}
	}
}

func (a *Activator) newCall(w http.ResponseWriter, r *http.Request, f *queue.Function, atOnce bool) *call {
	c := &call{a: a, f: f, atOnce: atOnce}
	if l := laterOf(r.Context()); l != nil {
		c.background = l.terms.Background
	}
	c.req.in, c.req.id, c.req.via, c.req.ollama, c.req.begun = r, requestID(r), forward.ViaOf(r.Context()), isOllama(r.URL.Path, f), time.Now()
	c.req.arrived, c.req.plain = c.req.begun, f != nil && (isPlain(f) || isRealtime(r))
	c.reply.w, c.reply.out, c.reply.id, c.reply.ollama = w, http.NewResponseController(w), c.req.id, c.req.ollama
	c.reply.unread.Timeout, c.reply.unread.Buffered = a.cfg.WriteTimeout, relay.Buffered(r)
	c.reply.comment.reply, c.reply.comment.a = &c.reply, a
	c.reply.costs = r.Header.Get("Te") == "trailers" && a.mayList(r)
	identify(w, r, c.req.id)
	return c
}

// release is no series of defers: those would stay on the stack of a held request, which is most of its memory.
func (c *call) release() {
	c.reply.comment.stop()
	c.reply.unread.Clear(c.reply.out)
	c.sent.cutOff()
	if c.f != nil {
		c.f.Leave(&c.want)
	}
	if c.req.body != nil {
		c.req.body.Release()
	}
	c.settle()
	c.a.picks.ended(c)
	if c.cancel != nil {
		c.cancel(nil)
	}
	c.logAccess()
	c.traceRequest()
	c.a.inFlight.leave()
}

func (c *call) parse() error {
	if !c.a.inFlight.arrive() {
		c.reply.w.Header().Set("Connection", "close")
		return shuttingDown()
	}
	in := c.req.in
	c.ctx, c.cancel = context.WithCancelCause(forward.WithCall(in.Context(), c.a.calls.Add(1)))
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
	if c.req.streams() {
		in = bodiless(in)
	}
	if c.req.body, err = c.a.door.Read(c.reply.w, in, c.req.peer.Client); err != nil {
		return err // an *api.Error
	}
	c.req.begun = time.Now()
	return nil
}

func (c *call) find() *api.Error {
	if c.req.plain {
		return c.findRealtime()
	}
	if err := c.req.parse(c.f == nil); err != nil {
		return err
	}
	c.reply.style, c.reply.usage.Style = c.req.style, c.req.style
	path, names := c.req.in.URL.Path, c.a.names.Load()
	if c.req.Stored != "" && path == "/v1/responses" && (c.f == nil || !isPlain(c.f)) {
		return notStored(c.req.Stored, c.a.cfg.Stored)
	}
	if c.f != nil {
		c.req.adapter = names.adapter(c.req.Model, c.f)
		return lacksPath(c.f, path)
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

func (c *call) describeWant() {
	r, w := &c.req, &c.want
	w.Adapter, w.Client, w.Priority, w.Background, w.AtOnce = r.adapter, r.peer.Client, r.Priority, c.background, c.atOnce
	turn := r.peer.Turn
	if w.Source = turn.Source; turn.Client != 0 {
		w.Priority, w.Before, w.AtOnce = turn.Priority, turn.Waited, false
		w.Waits = func(*queue.Function, time.Time) { c.tellTurn(0) }
	}
	w.Bytes, w.Input, w.Tokens, w.Sequences = api.Bytes(r.body.Len()), r.Input, r.Request.Tokens, r.Sequences
	w.Begun, w.Due, w.Deadline, w.Trace = r.begun, r.due, r.deadline, api.TraceFrom(r.in.Header)
	w.End, w.EndUnread, w.Drains = c.cancel, c.endUnread, c.drains
	w.Pause, w.Pays = c.reply.pause, c.pay
	w.FreeSlot = w.AtOnce || c.background || r.via != nil || r.streams() // a stream's wait at an instance is not reported
	if c.group != nil {
		w.Group = c.group.service
	}
	if r.commented() {
		w.Waits = c.reply.comment.begin
	}
	switch {
	case r.via != nil:
		w.Only = r.via.Allows
	case !r.plain && !c.atOnce: // a plain container may have handled it when another instance gets it
		w.Ahead = c.sendAhead
	}
}

func (c *call) acquire() (*queue.Slot, error) {
	c.preferInstances()
	ctx := c.ctx
	if most := c.req.peer.Turn.Most; most > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, min(most, control.MaxTurn), api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no slot became free in time"))
		defer done()
	}
	s, err := c.f.Acquire(ctx, &c.want)
	held, woke, waited := c.want.Waited()
	c.reply.timing.Hold, c.reply.timing.Wake, c.reply.timing.Queue = held, woke, held-woke
	if waited {
		c.tellTurn(held.Milliseconds() + 1)
	}
	return s, err
}

// send sends the request and the answer; done: there was one. A nil error without done means that the request goes
// elsewhere.
func (c *call) send(s *queue.Slot) (done bool, err error) {
	begun := c.reply.answered != 0 || c.atOnce && control.KnownState(c.req.in.Header.Get(control.HeaderState))
	if begun && !s.Spec.Resumes() { // the client would get the whole answer again
		s.Done(queue.Used{Input: c.req.Input})
		return false, api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut, and the function that is there now does not go on with it (request %s)", c.req.id)
	}
	c.a.picks.add(c, s)
	last := c.limit(s.Spec.RequestTimeout, tookTooLong)
	defer last.stop()
	if c.req.streams() {
		return c.stream(s)
	}
	answer, err := c.try(s, last)
	if err != nil {
		return false, c.failed(s, err)
	}
	return c.answer(s, answer), nil
}

// failed gives back the slot of a failed attempt. It returns the client's error, or nil if the request goes
// elsewhere.
func (c *call) failed(s *queue.Slot, err error) error {
	var failed *forward.Failure
	if !errors.As(err, &failed) { // the client left, or its time is up
		if !c.sent.queued.Load() { // else the runtime has not seen it
			c.abandon(s)
		}
		used := c.used()
		s.Done(queue.Used{Input: used.input, Output: used.output})
		return err
	}
	c.waitedThere(s, failed.Waited)
	c.sent.queued.Store(false) // even if the instance could not say so
	c.sent.last = failed.Code
	if failed.Waited > 0 && failed.Code == api.CodeBusy {
		s.GiveBack("")
		return nil
	}
	s.GiveBack(failed.Code)
	if failed.Code == api.CodeMoved {
		c.gaveWay(s)
		return nil
	}
	if failed.Given {
		c.sent.given++
		if c.atOnce { // the front door that holds the request decides
			return failed.Err
		}
	}
	if c.sent.given >= maxGiven {
		last := *failed.Err
		last.NoRetry = true
		c.a.log.Warn("request failed", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "error", failed)
		return &last
	}
	c.f.Metrics.Retried(failed.Code)
	c.a.log.Debug("attempt failed", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "error", failed)
	return nil
}

// abandon records the work for an unread answer: reported, estimated, or, of a stream, known.
func (c *call) abandon(s *queue.Slot) {
	c.reply.instance, c.reply.estimate.input = s.Instance, c.req.Input
	if (c.req.prompts || c.req.style != api.StreamPlain) && !c.streamed() && !c.reply.usage.Reported {
		c.reply.estimate.output = s.Generated()
	}
}

// answer copies the answer and gives the slot back. done is false if another instance resumes it.
func (c *call) answer(s *queue.Slot, answer *forward.Answer) (done bool) {
	if t := c.reply.timing; c.reply.answered == 0 {
		c.f.Metrics.Timing(t)
	} else {
		c.f.Metrics.Waited(t.Since(c.sent.before))
	}
	status := answer.Status()
	started := c.reply.comment.stop()
	c.reply.ends = &c.want
	c.reply.resumes = c.sent.resumed < maxResumed
	c.reply.pausable.Store(c.reply.state != nil && (answer.Events() || answer.Lines()))
	err := c.reply.copy(c.ctx, s.Instance, answer, started)
	if c.reply.answered/100 != 2 { // else the client has a part
		c.reply.answered, c.reply.instance = status, s.Instance
	}
	if errors.Is(err, errGoesOn) || errors.Is(err, errMoved) || errors.Is(err, errPaused) {
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
	used := c.used()
	s.Done(queue.Used{Served: true, Input: used.input, Output: used.output, Prompt: api.Tokens(c.reply.usage.Prompt)})
	c.spend(used)
	c.tellCost()
	var e *api.Error
	if errors.As(err, &e) {
		status, c.reply.code = e.Status, e.Code
		if e.Code == queue.CodeEvicted {
			c.f.Metrics.Refused(e.Code)
		}
		c.a.log.Error("answer cut", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "error", err)
	} else if err != nil {
		status, c.reply.code = api.StatusClientClosed, api.CodeClientLeft
	}
	c.reply.status = status
	c.f.Metrics.Done(status, time.Since(c.req.begun))
	if c.req.plain && c.reply.code == api.CodeRequestTimeout && errors.Is(err, errAbort) && c.reply.w.Header().Get("Content-Length") == "" {
		_, _ = c.reply.Write([]byte(e.Message)) // as in Knative, this is how a container's answer ends
		return true
	}
	if errors.Is(err, errAbort) || status == api.StatusClientClosed {
		// Without events, only this tells the client. One that seems to have left may still read.
		panic(http.ErrAbortHandler)
	}
	return true
}

func (c *call) tellCost() {
	if c.reply.costs {
		c.reply.trailer(http.Header{headerGPUSeconds: {strconv.FormatFloat(c.want.GPUSeconds, 'f', 6, 64)}})
	}
}

func (c *call) refuse(err error) {
	e, m := api.AsError(err), c.a.unrouted
	if c.f != nil {
		e, m = c.a.explain(e, c.f.Name, c.req.in), c.f.Metrics
	}
	if c.insteadOf != "" && e.Code != api.CodeClientLeft {
		both := *e // others may have the same error
		both.Message = fmt.Sprintf("%s; nor did %s answer in its place: %s", c.insteadOf, c.req.Model, e.Message)
		e = &both
	}
	e = withID(e, c.req.id)
	c.reply.status, c.reply.code = e.Status, e.Code
	c.spend(c.used()) // the client has left, or a stream is not resumed
	m.Refused(e.Code)
	m.Done(e.Status, time.Since(c.req.begun))
	started, h := c.reply.comment.stop(), c.reply.w.Header()
	if started {
		h.Set(headerTiming, c.reply.timing.String())
		_ = c.reply.event(e, c.reply.next) // the client may have left
		return
	}
	if reason := dropped[e.Code]; reason != "" {
		h.Set(headerDropped, reason)
	}
	if _, _, waited := c.want.Waited(); waited {
		h.Set(headerTiming, c.reply.timing.String())
	}
	switch {
	case c.atOnce && c.sent.given > 0:
		h.Set(control.HeaderFailed, e.Code)
	case c.atOnce && (e.Status == http.StatusServiceUnavailable || e.Code == api.CodeHoldFull): // the front door holds it
		held := *e // others may have the same error
		held.Status, e = http.StatusServiceUnavailable, &held
		h.Set(control.HeaderRefused, e.Code)
	}
	if !c.req.ollama && isOllama(c.req.in.URL.Path, nil) { // a function's own path of that name
		api.WriteError(c.reply.w, e)
		return
	}
	api.WriteErrorTo(c.reply.w, c.req.in, e)
}
