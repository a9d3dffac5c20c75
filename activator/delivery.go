package activator

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay"
)

type delivery struct {
	attempts    int
	given       int            // of these, a runtime may have seen
	resumed     int            // of these, resumed a cut answer
	moved       int            // of these, whose instance gave way
	before      metrics.Timing // when the answer was last cut
	last        string         // error code of the last failure
	queued      atomic.Bool    // for its turn at an instance
	upgraded    atomic.Pointer[upgraded]
	body        relay.Body // in place of the client's body
	pick        int        // in the ring
	speculative *speculative
}

// try waits for the first bytes of the answer. last limits the whole.
func (c *call) try(s *queue.Slot, last timeout) (*forward.Answer, error) {
	c.sent.attempts++
	c.reply.comment.dispatched()
	sent := time.Now()
	first := c.limit(s.Spec.FirstByteTimeout, beganTooLate)
	answer, done, err := c.sent.speculated(s.Instance)
	if !done {
		c.nameAlternatives(s)
		answer, err = c.sendInTurn(s, first, last)
		c.followGateway(s)
	}
	first.stop()
	c.reply.timing.First = time.Since(sent)
	c.want.Sent(sent, sent.Add(c.reply.timing.First))
	if err == nil {
		c.waitedThere(s, answer.Waited())
	}
	return answer, err
}

func (c *call) sendInTurn(s *queue.Slot, first, last timeout) (*forward.Answer, error) {
	attempt, ctx := c.attempt(s.Target), c.ctx
	// A background request that finds no free slot waits behind all others; without others there is no order.
	if (!c.want.FreeSlot || c.background) && (c.a.deps.Others != nil || s.Waits) {
		attempt.Turn = s.Turn()
		ctx = c.whileQueued(first, last)
	}
	if c.req.via != nil {
		attempt.Turn = c.quietTurn(s)
	}
	if c.req.plain { // as in Knative, its header begins the answer
		attempt.Answered = first.stop
	}
	return c.a.client.Send(ctx, *attempt)
}

// quietTurn is the turn for a gateway or a client that may not understand interim answers.
func (c *call) quietTurn(s *queue.Slot) (t control.Turn) {
	if c.a.deps.Others != nil && !s.Waits && !c.atOnce {
		t = s.Turn()
		t.Quiet = true
	}
	return t
}

// waitedThere counts the wait at the instance as time in the queue.
func (c *call) waitedThere(s *queue.Slot, d time.Duration) {
	if d <= 0 {
		return
	}
	s.Waited(d)
	t := &c.reply.timing
	t.Hold, t.Queue, t.First = t.Hold+d, t.Queue+d, max(t.First-d, 0)
	c.tellTurn(t.Hold.Milliseconds() + 1)
}

const maxAlternatives = 2

func (c *call) nameAlternatives(s *queue.Slot) {
	if c.req.via != nil {
		c.req.via.Next, c.req.via.Served = s.Alternatives(maxAlternatives), ""
	}
}

// followGateway moves s to the instance that the gateway chose.
func (c *call) followGateway(s *queue.Slot) {
	if c.req.via == nil || c.req.via.Served == "" || c.req.via.Served == s.Base.Host {
		return
	}
	if !s.Move(c.req.via.Served) {
		c.a.log.Warn("the gateway sent a request to an endpoint that is no instance: are the pool's targetPorts those of the functions?",
			"request", c.req.id, "function", c.f.Name, "instance", s.Instance, "chosen", s.Base.Host, "endpoint", c.req.via.Served)
		return
	}
	c.sent.last = api.CodeUnhealthy
	c.a.picks.add(c, s)
}

func (c *call) attempt(to queue.Target) *forward.Call {
	spec := to.Spec
	attempt := &forward.Call{In: c.req.in, Body: c.req.body, ID: c.req.id, Base: to.Base, Kind: c.req.style, Usage: &c.reply.usage, Memory: c.req.body,
		Instead: c.sent.body,
		Asks:    !c.req.plain && c.req.via == nil,
		Counts:  c.atOnce && c.req.in.Header[control.HeaderUsage] != nil,
		Plain:   c.req.plain, Tenant: c.req.peer.Tenant(), Models: c.models(), Trusted: c.req.peer.Trusted, Credentials: spec.PassCredentials && !c.holder.keyed()}
	switch {
	case !spec.Resumes():
		c.reply.handled = spec.TellsState() && len(spec.Handler) > 0
	case c.atOnce:
		attempt.Passed = c.req.in.Header.Get(control.HeaderState)
		c.reply.passes = attempt.Passed != ""
	case c.resumable():
		if c.reply.state == nil {
			c.reply.state = &relay.State{}
		}
		attempt.State = c.reply.state
	case spec.Moves() && c.restartable():
		attempt.Movable = true
	}
	if idle := spec.IdleTimeout; idle > 0 {
		attempt.Idle, attempt.Paused = idle, func() { c.tooLate(idle, pausedTooLong) }
	}
	return attempt
}

// speculative is a request sent right behind the call that wakes its instance, while it waits in its queue.
//
//  1. The instance holds it until its runtime accepts requests, and the answer until the canary has passed.
//  2. When the answer begins, the request gets a slot there, whatever the instance's last report.
//  3. If the instance refuses, the request is sent as if for the first time.
//  4. If the request gets another slot or ends, the call is cancelled.
type speculative struct {
	instance api.InstanceID
	cut      context.CancelFunc
	// Closed by the sending goroutine when the fields below are set.
	done   chan struct{}
	answer *forward.Answer
	err    error
}

func (c *call) sendAhead(to queue.Target, answered func()) {
	ctx, cut := context.WithCancel(c.ctx)
	s := &speculative{instance: to.Instance, cut: cut, done: make(chan struct{})}
	attempt := c.attempt(to)
	attempt.Wait = true
	c.sent.speculative = s
	client := c.a.client
	go func() {
		defer close(s.done)
		if s.answer, s.err = client.Send(ctx, *attempt); s.err == nil {
			answered()
		}
	}()
}

func (d *delivery) cutOff() {
	s := d.speculative
	if s == nil {
		return
	}
	d.speculative = nil
	s.cut()
	if <-s.done; s.answer != nil {
		s.answer.Close()
	}
}

// done is false if the request still has to be sent.
func (d *delivery) speculated(to api.InstanceID) (answer *forward.Answer, done bool, err error) {
	s := d.speculative
	if s == nil || s.instance != to {
		d.cutOff()
		return nil, false, nil
	}
	<-s.done // it ends with the context of the call
	d.speculative = nil
	if s.err == nil {
		return s.answer, true, nil
	}
	s.cut()
	var failed *forward.Failure
	if errors.As(s.err, &failed) && !failed.Given {
		return nil, false, nil
	}
	return nil, true, s.err
}

// A request that kills instances must not kill them all.
const maxResumed = 3

// Streams at these paths can be resumed.
var streams = map[string]bool{
	"/v1/chat/completions": true, "/v1/completions": true, "/v1/messages": true, "/v1/responses": true, "/api/chat": true, "/api/generate": true,
}

// mayMove reports whether the request may continue elsewhere: neither client, gateway nor front door object.
func (c *call) mayMove() bool {
	return c.req.in.Header.Get(control.HeaderResume) != "off" && c.req.via == nil && !c.atOnce
}

// resumable does not know whether the runtime can.
func (c *call) resumable() bool {
	return c.mayMove() && streams[c.req.in.URL.Path] && c.streamed()
}

// In Ollama's API a stream is the default.
func (c *call) streamed() bool {
	if c.req.Stream || !c.req.ollama {
		return c.req.Stream
	}
	said, found := c.req.body.Object().Find("stream")
	return !found || string(said) != "false"
}

// What was computed is lost.
const mostRestarted = 2

// restartable reports whether a request without a stream and side effects may be restarted.
func (c *call) restartable() bool {
	return c.mayMove() && !c.streamed() && operations[c.req.in.URL.Path] != "" && c.sent.moved < mostRestarted
}

// elsewhere gives back the slot of a stream that is to be resumed. It may wait as long as a new request.
func (c *call) elsewhere(s *queue.Slot, err error) {
	c.sent.before = c.reply.timing
	c.want.Renew()
	c.reply.comment.again()
	c.reply.pausable.Store(false)
	c.reply.pauses.Store(false)
	used := c.used()
	u := queue.Used{Input: used.input, Output: used.output}
	if errors.Is(err, errPaused) {
		s.Pause(u)
		c.f.Metrics.Retried(queue.CodeEvicted)
		c.a.log.Info("stream paused for other clients", "request", c.req.id, "function", c.f.Name, "instance", s.Instance)
		return
	}
	if errors.Is(err, errMoved) {
		s.Yield(api.CodeMoved, u)
		c.gaveWay(s)
		return
	}
	c.sent.resumed++
	c.sent.last = api.CodeStreamCut
	s.Yield(api.CodeStreamCut, u)
	c.f.Metrics.Retried(api.CodeStreamCut)
	c.a.log.Warn("answer cut, and goes on elsewhere", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "times", c.sent.resumed, "error", err)
}

func (c *call) gaveWay(s *queue.Slot) {
	c.sent.moved++
	c.sent.last = api.CodeMoved
	c.f.Metrics.Retried(api.CodeMoved)
	c.a.log.Info("its instance gives way, and it goes on elsewhere", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "times", c.sent.moved)
}

// Caller identifies the sender of a request served later. It holds no key: permissions are looked up then.
type Caller struct {
	// Client is as in [peer.Peer].
	Client string `json:"client"`
	// Local: on this machine.
	Trusted bool `json:"trusted,omitempty"`
	Local   bool `json:"local,omitempty"`
	// Account is its key's account, if one was needed.
	Account string `json:"account,omitempty"`
}

// Anonymous owns what clients without a key leave.
const Anonymous = "anonymous"

// Owner returns the owner of a caller's data: its tenant, or Anonymous.
func (c Caller) Owner() string {
	if peer.Tenant(c.Client) != "" {
		return c.Client
	}
	return Anonymous
}

// Caller identifies the sender of a request. The error is an *[api.Error]: a 401 without a valid key, if keys are
// on.
func (a *Activator) Caller(r *http.Request) (Caller, error) {
	p, account, err := a.clientOf(r)
	if err != nil {
		return Caller{}, err
	}
	c := Caller{Client: p.Client, Trusted: p.Trusted, Local: p.Local}
	if account == nil {
		return c, nil
	}
	if account.Tenant == "" {
		return Caller{}, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "a key is needed to leave something here: what clients without one leave would be everybody's")
	}
	c.Account = account.ID()
	return c, nil
}

// Terms are the conditions of a request served later.
type Terms struct {
	// Background: a priority below 0, only a free slot, no wake and no demand.
	Background bool
	// Charged means that [Activator.Charge] has counted it.
	Charged bool
}

const background = -4

type later struct {
	caller Caller
	terms  Terms
}

type laterKey struct{}

func laterOf(ctx context.Context) *later {
	l, _ := ctx.Value(laterKey{}).(*later)
	return l
}

// ServeLater serves a request for a caller by the rules of a direct one. Its body must name the model.
func (a *Activator) ServeLater(w http.ResponseWriter, r *http.Request, c Caller, t Terms) {
	if p, _ := api.FindPath("", r.URL.Path); p.Model == "" {
		a.notFound(w, r)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), laterKey{}, &later{caller: c, terms: t}))
	a.serve(w, r, nil, t.Background)
}

func (a *Activator) whose(c Caller) (peer.Peer, *keys.Account, error) {
	p := peer.Peer{Client: c.Client, Trusted: c.Trusted, Local: c.Local}
	if a.deps.Keys == nil || c.Trusted {
		return p, nil, nil
	}
	account, err := a.deps.Keys.Account(c.Account)
	return clientFor(account, p), account, err // an *api.Error
}

// Charge counts a request against a key's limits. The error is an *[api.Error]: a 429 with the time to retry.
func (a *Activator) Charge(ctx context.Context, c Caller) error {
	_, account, err := a.whose(c)
	if err != nil || account == nil {
		return err
	}
	if _, bad := account.Admit(ctx, time.Now(), control.Use{Requests: 1}); bad != nil {
		return bad
	}
	return nil
}

// ReadBody reads a body to be served later; the caller releases it. The error is an *[api.Error].
func (a *Activator) ReadBody(w http.ResponseWriter, r *http.Request, c Caller) (*inbound.Body, error) {
	body, err := a.door.Read(w, r, c.Client)
	if err != nil {
		return nil, api.AsError(err)
	}
	return body, nil
}

// OwnHost reports whether a host is a function's own.
func (a *Activator) OwnHost(host string) bool {
	_, own := a.names.Load().ownHost(host)
	return own
}

// Room is the free capacity of a model's instances.
type Room = queue.Room

// Room returns the free capacity of a model that the caller may use.
func (a *Activator) Room(c Caller, model string) (Room, *api.Error) {
	_, account, bad := a.whose(c)
	if bad != nil {
		return Room{}, api.AsError(bad)
	}
	names := a.names.Load()
	t, missing := names.find(model, account == nil || account.Rights().Unrestricted())
	if missing != nil {
		if account != nil && missing.Code == api.CodeModelNotFound && !account.Rights().Allows(model) {
			return Room{}, notAllowed(account, model)
		}
		return Room{}, missing
	}
	if account != nil && !account.Rights().Allows(namesFor(t.first(), model, names.adapter(model, t.first()))...) {
		return Room{}, notAllowed(account, model)
	}
	var all Room
	for _, s := range t.shares {
		r := s.f.Room()
		all.Slots, all.Free = all.Slots+r.Slots, all.Free+r.Free
		if r.Wake > 0 && (all.Wake == 0 || r.Wake < all.Wake) {
			all.Wake = r.Wake
		}
	}
	return all, nil
}
