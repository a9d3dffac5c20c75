package supervise

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
)

// Gate counts the requests in the runtime and lets new ones in only while it is
// awake and has room. It is safe for many goroutines and never blocks.
type Gate struct {
	limit int

	moved atomic.Uint64 // parts of answers that came from the runtime

	mu      sync.Mutex // guards what follows
	base    string     // URL of the runtime; empty while closed
	refusal *api.Error // why it is closed
	running int
	entered uint64
	idle    chan struct{} // closed by the last to leave once the gate is closed; nil while it is open
}

// NewGate makes a closed gate for limit requests at once.
func NewGate(limit int) *Gate {
	g := &Gate{limit: limit, refusal: refusal(api.Starting, "")}
	g.idle = make(chan struct{})
	close(g.idle)
	return g
}

// Enter takes a place and returns the runtime's base URL; the caller calls Leave
// when its request has ended. A refusal (503) says that the request was not and
// will not be given to the runtime.
func (g *Gate) Enter() (base string, refused *api.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.base == "":
		return "", g.refusal
	case g.running >= g.limit:
		return "", api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the instance runs %d requests, its limit", g.running)
	}
	g.running++
	g.entered++
	return g.base, nil
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
}

// Moved says that the runtime has sent a part of an answer: it does not hang.
func (g *Gate) Moved() { g.moved.Add(1) }

// Running is the number of places taken, and entered how many ever were.
func (g *Gate) Running() (running int, entered uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.entered
}

// open lets requests in, to the runtime at e.
func (g *Gate) open(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal, g.idle = e.URL(""), nil, nil
}

// shut lets none in from now on and says why. The channel is closed once all
// that are in have left.
func (g *Gate) shut(why *api.Error) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.refusal = "", why
	if g.idle == nil {
		g.idle = make(chan struct{})
		if g.running == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

// refusal is what a request is told in a state that takes none.
func refusal(state api.State, message string) *api.Error {
	code, text := api.CodeLoading, "the instance is starting"
	switch state {
	case api.Draining:
		code, text = api.CodeDraining, "the instance is draining and takes nothing new"
	case api.Asleep:
		code, text = api.CodeAsleep, "the instance is asleep"
	case api.Gone:
		code, text = api.CodeShutdown, "the instance is shutting down"
	case api.Unhealthy:
		code, text = api.CodeUnhealthy, "the instance is unhealthy: "+message
	}
	return api.Errorf(http.StatusServiceUnavailable, code, "%s", text)
}
