package supervise

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// Gate admits requests only while the runtime is awake and has room. It is safe for many goroutines. Only EnterBehind and EnterInTurn
// block.
type Gate struct {
	limit int

	moved atomic.Uint64 // parts of answers that came from the runtime
	// signalled by Unreachable; room for one
	lost chan struct{}
	// signalled when a request enters an empty runtime; room for one
	busy chan struct{}

	mu         sync.Mutex // guards the fields below
	base       string     // URL of the runtime; empty while closed
	last       string     // of the runtime that the requests are in
	refusal    *api.Error
	back       reopening
	validation *validation
	turns      fair.Queue               // requests that wait for a slot
	shares     fair.Shares[fair.Client] // slots of those that wait or run
	running    int
	movables   int  // running requests that can move to another instance
	moving     bool // they are being ended for that
	entered    uint64
	unready    *api.Error    // why an open gate admits only probes; nil: it admits requests
	turned     chan struct{} // closed when it is next opened or shut; nil while nobody waits for it
	idle       chan struct{} // closed by the last to leave once the gate is closed; nil while it is open
	settled    chan struct{} // closed when all running requests can move; nil while nobody waits for it
}

// reopening is when a closed gate is expected to open: after the duration, from at or, if that is zero, from now. Zero: unknown, or
// never.
type reopening struct {
	at    time.Time
	after time.Duration
}

// fromNow returns the client's Retry-After: at least a second, or 0 for never.
func (r reopening) fromNow() time.Duration {
	if r == (reopening{}) {
		return 0
	}
	wait := r.after
	if !r.at.IsZero() {
		wait += time.Until(r.at)
	}
	return max(wait, time.Second)
}

func newGate(limit int) *Gate {
	g := &Gate{
		limit: limit, lost: make(chan struct{}, 1), busy: make(chan struct{}, 1), idle: make(chan struct{}),
		refusal: refusal(api.Starting, false), back: reopening{after: unknownWait},
	}
	close(g.idle)
	return g
}

// Enter takes a slot and returns the runtime's base URL; the caller calls Leave when its request has ended. A refused request never reaches
// the runtime.
func (g *Gate) Enter() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enter(g.base)
}

// EnterInTurn is Enter for a request that may wait for its turn, at most [control.MaxTurn], while the gate is open and full. beforeWait
// is called before it waits; its error ends that. The caller calls LeaveTurn when the request has ended.
func (g *Gate) EnterInTurn(ctx context.Context, t control.Turn, beforeWait func() error) (base string, refused *api.Error, err error) {
	base, refused, waits := g.tryTurn(t)
	if !waits {
		return base, refused, nil
	}
	if err := beforeWait(); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, min(t.Most, control.MaxTurn), refused)
	defer cancel()
	now := time.Now()
	w := &turn{Turn: t, entered: now, admitted: make(chan struct{})}
	arrived := now.Add(-t.Waited)
	g.mu.Lock()
	if g.turns.Len() >= 16*g.limit {
		g.mu.Unlock()
		return "", refused, nil
	}
	w.item = fair.Item{Client: client(t), Priority: t.Priority, Arrived: arrived, Ticket: uint64(arrived.UnixNano()), Of: w}
	g.turns.Put(&w.item)
	g.shares.Add(w.item.Client, 1, 0)
	g.admit()
	g.mu.Unlock()
	select {
	case <-w.admitted:
		return w.base, w.refused, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	waits = g.removeTurn(w)
	g.mu.Unlock()
	switch late := context.Cause(ctx) == error(refused); {
	case late && waits:
		return "", refused, nil
	case late: // admitted or refused at the same moment
		return w.base, w.refused, nil
	case !waits && w.refused == nil:
		g.LeaveTurn(t, 0)
	}
	return "", nil, context.Cause(ctx)
}

type turn struct {
	control.Turn
	item    fair.Item
	entered time.Time
	given   bool // another one gives way for it
	// closed, once base or refused is set, by the goroutine that takes the turn out of the queue
	admitted chan struct{}
	base     string
	refused  *api.Error
}

func client(t control.Turn) fair.Client { return fair.Client{Source: t.Source, Name: t.Client} }

// tryTurn is EnterInTurn without a wait. A request without a client may wait only while others do.
func (g *Gate) tryTurn(t control.Turn) (base string, refused *api.Error, wait bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if base, refused = g.enter(g.base); refused == nil {
		g.chargeTurn(t)
		return base, nil, false
	}
	return base, refused, refused.Code == api.CodeBusy && (t.Client != control.NoClient || g.turns.Len() > 0)
}

// LeaveTurn is Leave after EnterInTurn. cost is the actual cost, in input tokens.
func (g *Gate) LeaveTurn(t control.Turn, cost float64) {
	g.mu.Lock()
	g.turns.Settle(client(t), t.Priority, cost-t.Cost)
	g.shares.Add(client(t), 0, -g.slots(t))
	g.mu.Unlock()
	g.Leave()
}

// g.mu is held.
func (g *Gate) chargeTurn(t control.Turn) {
	g.turns.Charge(client(t), t.Priority, t.Cost)
	g.shares.Add(client(t), 0, g.slots(t))
}

// removeTurn reports whether w still waited. g.mu is held.
func (g *Gate) removeTurn(w *turn) bool {
	waits := g.turns.Remove(&w.item)
	if waits {
		g.shares.Add(w.item.Client, -1, 0)
	}
	return waits
}

// admit gives free slots to the waiting requests, in turn. A closed gate refuses them all. g.mu is held.
func (g *Gate) admit() {
	for g.turns.Len() > 0 {
		base, refused := g.enter(g.base)
		if refused != nil && refused.Code == api.CodeBusy {
			return
		}
		w := g.first()
		if w.base, w.refused = base, refused; refused == nil {
			g.chargeTurn(w.Turn)
		}
		g.removeTurn(w)
		close(w.admitted)
	}
}

// EnterProbe is Enter for a probe, which is also admitted while the runtime is not ready for requests.
func (g *Gate) EnterProbe() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takePlace(g.base)
}

// setReady sets why an open gate refuses requests; nil: it admits them.
func (g *Gate) setReady(unready *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unready = unready
	g.admit()
}

// enter takes a slot in the runtime at base; empty: there is none. g.mu is held.
func (g *Gate) enter(base string) (string, *api.Error) {
	if base != "" && g.unready != nil {
		return "", g.unready
	}
	return g.takePlace(base)
}

// takePlace takes a slot whether the runtime is ready or not. g.mu is held.
func (g *Gate) takePlace(base string) (string, *api.Error) {
	switch {
	case base == "":
		return "", g.refused()
	case g.running >= g.limit:
		return "", api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the instance runs %d requests, its limit", g.limit).WithRetryAfter(time.Second)
	}
	if g.running++; g.running == 1 {
		select {
		case g.busy <- struct{}{}:
		default:
		}
	}
	g.entered++
	return base, nil
}

// EnterBehind is Enter for a request that came with the call that wakes the runtime. It waits for at most limit while the instance sleeps
// or starts.
//
// If the runtime is awake but not validated, validated is not nil, and the answer must be held back until it returns: a refusal means to
// throw the answer away. inside, the context for the runtime's request, ends then too.
func (g *Gate) EnterBehind(ctx context.Context, limit time.Duration) (base string, inside context.Context, validated func() *api.Error, refused *api.Error) {
	waiting, done := context.WithTimeout(ctx, limit)
	defer done()
	for {
		g.mu.Lock()
		closed := g.base == "" && (g.refusal.Code == api.CodeAsleep || g.refusal.Code == api.CodeLoading)
		if !closed || g.validation != nil || waiting.Err() != nil {
			defer g.mu.Unlock()
			return g.enterBehind(ctx)
		}
		if g.turned == nil {
			g.turned = make(chan struct{})
		}
		turned := g.turned
		g.mu.Unlock()
		select {
		case <-turned:
		case <-waiting.Done():
		}
	}
}

// enterBehind is EnterBehind without a wait. g.mu is held.
func (g *Gate) enterBehind(ctx context.Context) (base string, inside context.Context, validated func() *api.Error, refused *api.Error) {
	t := g.validation
	if t == nil {
		base, refused = g.enter(g.base)
		return base, ctx, nil, refused
	}
	if base, refused = g.enter(t.base); refused != nil {
		return "", ctx, nil, refused
	}
	if g.running == 1 {
		g.idle = make(chan struct{}) // the shut gate's is closed
	}
	inside, cut := context.WithCancelCause(ctx)
	t.cuts = append(t.cuts, cut)
	return base, inside, func() *api.Error { return t.validated(inside) }, nil
}

// g.mu is held.
func (g *Gate) turn() {
	if g.turned != nil {
		close(g.turned)
		g.turned = nil
	}
}

// Inside returns the base URL for a call on behalf of a request that has entered. It takes no slot, and passes a gate that was shut
// meanwhile.
func (g *Gate) Inside() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base == "" && g.running == 0 {
		return "", g.refused()
	}
	return g.last, nil
}

// Refusal is nil while the gate is open, however many requests run.
func (g *Gate) Refusal() *api.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base != "" {
		return nil
	}
	return g.refused()
}

func (g *Gate) refused() *api.Error {
	if wait := g.back.fromNow(); wait > 0 {
		return g.refusal.WithRetryAfter(wait)
	}
	return g.refusal
}

// Leave gives the slot back.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running < 0 {
		panic("supervise: Leave without Enter")
	}
	if g.running == 0 && g.idle != nil {
		close(g.idle)
	}
	g.admit()
	g.settle()
}

// Movable says whether a request that has entered can move to another instance. After true the caller says false before Leave.
func (g *Gate) Movable(is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if is {
		g.movables++
	} else {
		g.movables--
	}
	g.settle()
}

// Moving reports whether the movable requests are being ended.
func (g *Gate) Moving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moving
}

// g.mu is held.
func (g *Gate) settle() {
	if g.settled != nil && g.running <= g.movables {
		close(g.settled)
		g.settled = nil
	}
}

// movable returns a channel that is closed once all requests can move. A later change may make that untrue again.
func (g *Gate) movable() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	settled := g.settled
	if settled == nil {
		settled = make(chan struct{})
		g.settled = settled
	}
	g.settle()
	return settled
}

// move marks the requests in a shut gate as being ended for a move, unless one can't, and reports whether it did.
func (g *Gate) move() (running int, moved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moving = g.base == "" && g.running <= g.movables
	return g.running, g.moving
}

// Moved says that a part of an answer came.
func (g *Gate) Moved() { g.moved.Add(1) }

// Unreachable says that an admitted request got no connection, or was told that the runtime ends: its health is checked at once.
func (g *Gate) Unreachable() {
	select {
	case g.lost <- struct{}{}:
	default:
	}
}

// Busy is signalled when a request enters an empty runtime, for one reader.
func (g *Gate) Busy() <-chan struct{} { return g.busy }

// Running returns the number of slots in use, and how many requests have ever entered.
func (g *Gate) Running() (running int, entered uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.entered
}

type traffic struct {
	running        int
	entered, moved uint64
}

func (g *Gate) traffic() traffic {
	g.mu.Lock()
	defer g.mu.Unlock()
	return traffic{g.running, g.entered, g.moved.Load()}
}

func (g *Gate) open(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal, g.idle, g.moving = e.URL(""), nil, nil, false
	g.last = g.base
	g.endValidation(nil)
	g.turn()
	g.admit()
}

// shut admits no more requests. A validation ends too, unless the instance is starting. The channel is closed once all admitted requests
// have left.
func (g *Gate) shut(why *api.Error, back reopening) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal, g.back = "", why, back
	if why.Code != api.CodeLoading {
		g.endValidation(why)
	}
	g.turn()
	g.admit()
	if g.idle == nil {
		g.idle = make(chan struct{})
		if g.running == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

func (g *Gate) expect(back reopening) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = back
}

func refusal(state api.State, failed bool) *api.Error {
	code, text := api.CodeLoading, "the instance is starting"
	switch state {
	case api.Starting:
		if failed {
			text = "the instance is starting again: its runtime had failed"
		}
	case api.Draining:
		code, text = api.CodeDraining, "the instance is draining and takes nothing new"
	case api.Asleep:
		code, text = api.CodeAsleep, "the instance is asleep"
	case api.Gone:
		code, text = api.CodeShutdown, "the instance is shutting down"
	case api.Unhealthy:
		code, text = api.CodeUnhealthy, "the instance is unhealthy: its runtime has failed"
	}
	return api.Errorf(http.StatusServiceUnavailable, code, "%s", text)
}
