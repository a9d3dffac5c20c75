package supervise

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Gate counts the requests in the runtime and lets new ones in only while it is
// awake and has room. It is safe for many goroutines and never blocks.
type Gate struct {
	limit int

	moved atomic.Uint64 // parts of answers that came from the runtime
	// lost gets a word where a request could not connect; sent to by Unreachable,
	// one place: many such requests are one reason to look.
	lost chan struct{}
	// busy gets a word where a request enters and no other is in; one place: who reads
	// it looks how it is then.
	busy chan struct{}

	mu         sync.Mutex  // guards what follows
	base       string      // URL of the runtime; empty while closed
	last       string      // URL of the runtime that the requests are in
	refusal    *api.Error  // why it is closed
	back       reopening   // when it is expected to be open again
	validation *validation // lets in who came behind a wake; nil: nobody
	running    int
	movables   int  // of these, requests that can go on elsewhere
	moving     bool // they are being ended for that
	entered    uint64
	unready    *api.Error    // why an open gate lets in probes only; nil: it lets in requests
	turned     chan struct{} // closed when it is next opened or shut; nil while nobody waits for it
	idle       chan struct{} // closed by the last to leave once the gate is closed; nil while it is open
	settled    chan struct{} // closed when all that run can go on elsewhere; nil while nobody waits for it
}

// reopening is when a closed gate is expected to be open: after the time from
// at, or from now where at is zero. The zero value: nobody knows, or never.
type reopening struct {
	at    time.Time
	after time.Duration
}

// fromNow is what a client is told to wait: at least a second, 0 for never.
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

// newGate makes a closed gate for limit requests at once.
func newGate(limit int) *Gate {
	g := &Gate{
		limit: limit, lost: make(chan struct{}, 1), busy: make(chan struct{}, 1), idle: make(chan struct{}),
		refusal: refusal(api.Starting, false), back: reopening{after: unknownWait},
	}
	close(g.idle)
	return g
}

// Enter takes a place and returns the runtime's base URL; the caller calls Leave
// when its request has ended. A refusal (503) says that the request was not and
// will not be given to the runtime, and when another try is worth it.
func (g *Gate) Enter() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enter(g.base)
}

// EnterProbe is Enter for a probe: it gets into a runtime that is not ready for requests too.
func (g *Gate) EnterProbe() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takePlace(g.base)
}

// setReady lets requests in again, or says why they are refused although the runtime runs.
func (g *Gate) setReady(unready *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unready = unready
}

// enter takes a place in the runtime at base; empty: there is none. g.mu is held.
func (g *Gate) enter(base string) (string, *api.Error) {
	if base != "" && g.unready != nil {
		return "", g.unready
	}
	return g.takePlace(base)
}

// takePlace is enter whether the runtime is ready or not. g.mu is held.
func (g *Gate) takePlace(base string) (string, *api.Error) {
	switch {
	case base == "":
		return "", g.refused()
	case g.running >= g.limit:
		return "", api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the instance runs %d requests, its limit", g.running).WithRetryAfter(time.Second)
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

// EnterBehind is Enter for a request that came behind the call that wakes the runtime: it
// waits, for limit at most, while the gate is shut because the instance sleeps or comes up.
//
// Where the runtime is awake and has not shown yet that it is what it was, the request gets
// in speculatively: validated is not nil, and returns when that is known or inside has ended. What the runtime
// answers until then is nobody's; where validated returns a refusal it is thrown away, and
// inside, the context in which the runtime is asked, is over.
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

// enterBehind takes the place, speculatively where that is how it is. g.mu is held.
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
		g.idle = make(chan struct{}) // that of the shut gate is closed
	}
	inside, cut := context.WithCancelCause(ctx)
	t.cuts = append(t.cuts, cut)
	return base, inside, func() *api.Error { return t.validated(inside) }, nil
}

// turn wakes those who wait for it. g.mu is held.
func (g *Gate) turn() {
	if g.turned != nil {
		close(g.turned)
		g.turned = nil
	}
}

// Inside returns the runtime's base URL for a call on behalf of a request that has
// entered: it takes no place, and a gate that was shut since lets it through.
func (g *Gate) Inside() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base == "" && g.running == 0 {
		return "", g.refused()
	}
	return g.last, nil
}

// Refusal is what a request would be told now; nil while the gate is open,
// however many requests run.
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

// Leave gives the place back.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running < 0 {
		panic("supervise: Leave without Enter")
	}
	if g.running == 0 && g.idle != nil {
		close(g.idle)
	}
	g.settle()
}

// Movable says of a request that has entered whether it can go on at another instance. A caller that has said true says false before Leave.
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

// Moving says whether the requests that can go on elsewhere are being ended for that.
func (g *Gate) Moving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moving
}

// settle tells who waits that all can go on elsewhere. g.mu is held.
func (g *Gate) settle() {
	if g.settled != nil && g.running <= g.movables {
		close(g.settled)
		g.settled = nil
	}
}

// movable is closed once all requests in a gate that is shut can go on elsewhere. It may not be so any more when that is seen.
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

// move says that the requests in a gate that is shut are ended, so that they go on elsewhere; not where one can't.
func (g *Gate) move() (running int, moved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moving = g.base == "" && g.running <= g.movables
	return g.running, g.moving
}

// Moved says that the runtime has sent a part of an answer: it does not hang.
func (g *Gate) Moved() { g.moved.Add(1) }

// Unreachable says that a request that had entered got no connection to the
// runtime, or was told that it ends: the supervisor looks at its health at once.
func (g *Gate) Unreachable() {
	select {
	case g.lost <- struct{}{}:
	default:
	}
}

// Busy gets a word when a request enters and no other is in. It is for one reader.
func (g *Gate) Busy() <-chan struct{} { return g.busy }

// Running is the number of places taken, and entered how many ever were.
func (g *Gate) Running() (running int, entered uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.entered
}

// traffic is what a gate has seen.
type traffic struct {
	running        int
	entered, moved uint64
}

func (g *Gate) traffic() traffic {
	g.mu.Lock()
	defer g.mu.Unlock()
	return traffic{g.running, g.entered, g.moved.Load()}
}

// open lets requests in, to the runtime at e.
func (g *Gate) open(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal, g.idle, g.moving = e.URL(""), nil, nil, false
	g.last = g.base
	g.endValidation(nil)
	g.turn()
}

// shut lets none in from now on and says why, and until when; for any reason but
// that the instance comes up, that ends a validation with a refusal too. The channel is
// closed once all that are in have left.
func (g *Gate) shut(why *api.Error, back reopening) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal, g.back = "", why, back
	if why.Code != api.CodeLoading {
		g.endValidation(why)
	}
	g.turn()
	if g.idle == nil {
		g.idle = make(chan struct{})
		if g.running == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

// expect changes when a closed gate is expected to be open.
func (g *Gate) expect(back reopening) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = back
}

// refusal is what a request is told in a state that takes none; failed says that the runtime has failed
// before. Why it has is for its operator: the status says it.
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
