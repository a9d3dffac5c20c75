package proxy

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// bytesPerToken serves until the runtime has reported the first lengths.
const bytesPerToken = 4

// Load is the work in the runtime.
type Load struct {
	Requests int
	// Tokens is the estimated length of the requests' prompts, plus the tokens generated for them.
	Tokens api.Tokens
	// Queued counts requests whose answer has not begun; QueuedTokens is their part of Tokens.
	Queued       int
	QueuedTokens api.Tokens
	// Adapters are the adapters that the requests name, sorted.
	Adapters []api.ModelName
	// Held has, for each request that waits for its adapter's place, that adapter; names repeat.
	Held []api.ModelName
}

// Load is safe for many goroutines.
func (p *Proxy) Load() Load { return p.load.read() }

type load struct {
	requests, tokens, silent, queued atomic.Int64
	perToken                         atomic.Uint64 // mean bytes of a body per token, as bits of a float; 0: not known

	mu             sync.Mutex // guards the contents of the maps
	adapters, held map[api.ModelName]int
}

type live struct {
	load           *load
	adapter        api.ModelName
	size           int
	prompt, tokens int64
	begun          bool
}

func (l *load) begin(adapter api.ModelName, size int) live {
	v := live{load: l, adapter: adapter, size: size, prompt: int64(float64(size) / l.bytesPerToken())}
	l.requests.Add(1)
	l.silent.Add(1)
	l.tokens.Add(v.prompt)
	l.queued.Add(v.prompt)
	l.count(l.adapters, adapter, 1)
	return v
}

func (l *load) count(by map[api.ModelName]int, adapter api.ModelName, n int) {
	if adapter == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if by[adapter] += n; by[adapter] == 0 {
		delete(by, adapter)
	}
}

func (v *live) answered() {
	if !v.begun {
		v.begun = true
		v.load.silent.Add(-1)
		v.load.queued.Add(-v.prompt)
	}
}

func (v *live) generated(n int) {
	if n > 0 {
		v.answered()
		v.tokens += int64(n)
		v.load.tokens.Add(int64(n))
	}
}

func (l *load) bytesPerToken() float64 {
	if bits := l.perToken.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return bytesPerToken
}

// counted records the prompt's number of tokens. A concurrent call may overwrite it.
func (v *live) counted(prompt int) {
	if prompt <= 0 || v.size <= 0 {
		return
	}
	mean := float64(v.size) / float64(prompt)
	if v.load.perToken.Load() != 0 {
		mean = (7*v.load.bytesPerToken() + mean) / 8
	}
	v.load.perToken.Store(math.Float64bits(mean))
}

func (v *live) end() {
	v.answered()
	v.load.requests.Add(-1)
	v.load.tokens.Add(-v.prompt - v.tokens)
	v.load.count(v.load.adapters, v.adapter, -1)
}

func (l *load) read() Load {
	r := Load{Requests: int(l.requests.Load()), Tokens: api.Tokens(l.tokens.Load()), Queued: int(l.silent.Load()), QueuedTokens: api.Tokens(l.queued.Load())}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Adapters = slices.Sorted(maps.Keys(l.adapters))
	for name, n := range l.held {
		for range n {
			r.Held = append(r.Held, name)
		}
	}
	return r
}

// waiting ends streams that nobody reads while requests wait for a slot.
type waiting struct {
	count atomic.Int64

	mu      sync.Mutex // guards the fields below
	streams map[*exchange]struct{}
	timer   *time.Timer
}

func (w *waiting) begin() {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Second, w.check)
	}
}

func (w *waiting) end() { w.count.Add(-1) }

func (w *waiting) watch(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams == nil {
		w.streams = make(map[*exchange]struct{})
	}
	w.streams[x] = struct{}{}
}

func (w *waiting) forget(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, x)
}

func (w *waiting) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count.Load() == 0 {
		w.timer = nil
		return
	}
	w.timer.Reset(time.Second)
	for x := range w.streams {
		if x.unread.Stuck() {
			x.unread.Cut(http.NewResponseController(x.w), func() { x.log("stream ended: nobody reads it, and another request waits", nil) })
			delete(w.streams, x)
		}
	}
}
