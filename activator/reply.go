package activator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

const (
	headerTiming = "Server-Timing"
	// headerInstance names the instance that answers; in a cluster a pod.
	headerInstance = "X-Rouse-Instance"
	// headerGPUSeconds is a trailer for callers that accept trailers and may read the metrics.
	headerGPUSeconds = "X-Rouse-Gpu-Seconds"
)

// reply belongs to the request's goroutine; until comment.stop the mutex of the comments guards the connection.
type reply struct {
	w       http.ResponseWriter
	out     *http.ResponseController
	id      string
	style   api.Stream // format of an error event
	ollama  bool
	timing  metrics.Timing
	comment comments
	costs   bool
	ends    *queue.Want // its wake ends with the next write

	limits   *keys.Charge
	usage    relay.Usage
	estimate tokens // for a client that has left
	answered int    // an instance's status; 0: none
	instance api.InstanceID
	status   int
	code     string

	// nil: the stream can't be resumed. resumes: not too often yet.
	state   *relay.State
	resumes bool
	handled bool // by a handler: it can't be resumed
	passes  bool // the front door resumes the stream
	next    int  // event in a resumed stream

	unread relay.WriteDeadline

	pausable, pauses atomic.Bool // the stream may be paused, and shall be
}

// Cached input counts in both input and cached.
type tokens struct{ input, cached, output api.Tokens }

// used returns nothing if no instance began the request or one refused it.
func (c *call) used() tokens {
	r := &c.reply
	if r.answered/100 != 2 && !r.usage.Reported {
		return r.estimate
	}
	output := api.Tokens(r.usage.Tokens())
	return tokens{input: cmp.Or(api.Tokens(r.usage.Prompt), c.req.Input), cached: api.Tokens(r.usage.Cached), output: cmp.Or(output, r.estimate.output)}
}

// Only aborting the connection tells the client.
var errAbort = errors.New("abort the client's connection")

// Another instance resumes the answer.
var errGoesOn = errors.New("the stream goes on elsewhere")

// The instance gives way.
var errMoved = errors.New("the stream is moved")

// The slot goes to another client.
var errPaused = errors.New("the stream is paused")

// Any goroutine may call pause.
func (r *reply) pause() bool { return r.pausable.Load() && !r.pauses.Swap(true) }

// copy writes an instance's answer; started: the header was sent. The error is an *[api.Error] if the answer was
// cut, with [errAbort] if the client does not know yet; otherwise the client left.
func (r *reply) copy(ctx context.Context, from api.InstanceID, answer *forward.Answer, started bool) error {
	if started {
		return r.copyLate(ctx, answer)
	}
	h := r.w.Header()
	answer.Header(h)
	if answer.Events() || r.costs {
		h.Del("Content-Length") // an error event may have to follow, or a trailer
	}
	r.limits.Describe(h) // overrides the instance's own
	h[headerTiming] = []string{r.timing.String()}
	h[headerInstance] = []string{string(from)}
	r.w.WriteHeader(answer.Status())
	return r.end(ctx, answer, answer.Copy(r))
}

// copyLate is for a client that expects events, whatever the status.
func (r *reply) copyLate(ctx context.Context, answer *forward.Answer) error {
	defer r.w.Header().Set(headerTiming, r.timing.String())
	var e *api.Error
	switch {
	case answer.Status()/100 != 2:
		e = answer.Error()
	case !answer.Events() && !(r.answered != 0 && lines(r.w.Header()) && answer.Lines()):
		e = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered a stream with something that is no event stream")
	case r.answered != 0: // it is resumed
		return r.end(ctx, answer, answer.Copy(r))
	default:
		if _, err := r.Write([]byte(": server-timing " + r.timing.String() + "\n\n")); err != nil {
			return err
		}
		return r.end(ctx, answer, answer.Copy(r))
	}
	r.code = e.Code
	return r.event(e, r.next)
}

// A client that reads events gets the error.
func (r *reply) end(ctx context.Context, answer *forward.Answer, err error) error {
	if err == nil {
		r.trailer(answer.Trailer())
		return nil
	}
	cut := errors.Is(err, relay.ErrCut) || errors.Is(err, errPaused)
	if errors.Is(err, forward.ErrClient) && !cut {
		if ended, is := errors.AsType[*api.Error](context.Cause(ctx)); is { // otherwise the client left
			return errors.Join(ended, err, errAbort)
		}
		return err
	}
	if r.passes && errors.Is(err, relay.ErrCut) && context.Cause(ctx) == nil {
		return errors.Join(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut, for the front door to have it go on"), err, errAbort)
	}
	if r.state != nil && (answer.Events() || answer.Lines()) && r.state.Known() && cut && context.Cause(ctx) == nil {
		r.next = answer.Next()
		if r.ollama && lines(r.w.Header()) {
			r.style = api.StreamLines
		}
		switch {
		case errors.Is(err, errPaused):
			return err
		case r.state.Moved():
			return errors.Join(errMoved, err)
		case r.resumes:
			return errors.Join(errGoesOn, err)
		}
	}
	e := api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut%s (request %s)", r.stays(answer), r.id)
	if cause := context.Cause(ctx); cause != nil {
		if !errors.As(cause, &e) {
			return cause // the client left
		}
	}
	switch {
	case r.ollama && lines(r.w.Header()):
		r.style = api.StreamLines
	case !answer.Events():
		return errors.Join(e, err, errAbort)
	}
	return errors.Join(e, err, r.event(e, max(r.next, answer.Next())))
}

func (r *reply) trailer(fields http.Header) {
	for name, values := range fields {
		_ = r.flush() // or a short answer goes out with its length and without trailers
		r.w.Header()[http.TrailerPrefix+name] = values
	}
}

// stays returns why a cut stream is not resumed.
func (r *reply) stays(answer *forward.Answer) string {
	switch {
	case r.handled:
		return ", and does not go on elsewhere: the function has a handler"
	case r.state == nil || !answer.Events() && !answer.Lines():
		return ""
	case r.state.Again():
		return ", and the instance that was to go on with it began again"
	case r.state.Known():
		return ", and has gone on elsewhere too often"
	case r.state.Told():
		return ", and is too long to go on elsewhere"
	}
	return ", and its instance has not told how another could go on"
}

func (r *reply) event(e *api.Error, next int) error {
	if _, err := r.Write(r.style.Error(e, next)); err != nil {
		return err
	}
	return r.flush()
}

// withID adds the id by which an operator finds the details, which are only in the log.
func withID(e *api.Error, id string) *api.Error {
	switch e.Code {
	case api.CodeStartFailed, api.CodeRuntimeFailed, api.CodeUnhealthy:
		t := *e
		t.Message += " (request " + id + ")"
		return &t
	}
	return e
}

// A client that does not read for too long counts as gone.
func (r *reply) Write(p []byte) (int, error) {
	r.unread.Move(r.out, len(p))
	n, err := r.w.Write(p)
	r.unread.Done()
	if r.ends != nil { // what follows is not part of the wake
		r.ends.FirstByte()
		r.ends = nil
	}
	return n, err
}

// Flush returns errPaused if the stream is to be paused after a whole event.
func (r *reply) Flush() error {
	if err := r.flush(); err != nil || !r.pauses.Load() || !r.state.Known() {
		return err
	}
	return errPaused
}

func (r *reply) flush() error { return r.unread.Flush(r.out) }

// A stuck write ends the client's connection. Any goroutine may call endUnread, which does not block.
func (c *call) endUnread() bool {
	stuck := c.reply.unread.Stuck()
	if stuck {
		go c.reply.unread.Cut(c.reply.out, func() {
			c.cancel(api.Errorf(api.StatusClientClosed, queue.CodeEvicted, "the client left its answer unread for %s while other requests waited", relay.CutAfter))
		})
	}
	return stuck
}

// comments keeps a streaming client informed while its request is held. The first one sends the header: then a
// failure can only be an event. A timer's goroutine writes them, until stop.
type comments struct {
	reply *reply
	a     *Activator

	mu      sync.Mutex // guards all below, and the connection until stop
	f       *queue.Function
	since   time.Time
	timer   *time.Timer
	state   commentState
	started bool // the header is sent
	sent    bool
}

type commentState int

const (
	commentIdle commentState = iota
	commentOn
	commentStopped
)

// begin starts the comments if they are not running.
func (m *comments) begin(f *queue.Function, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.f, m.since, m.sent = f, since, false
	if m.state != commentIdle {
		return
	}
	m.state = commentOn
	m.timer = time.AfterFunc(max(m.a.cfg.CommentAfter-m.reply.timing.Hold, 0), m.tick)
}

// Without a header yet, dispatched stops the comments: the client can still get an honest status.
func (m *comments) dispatched() {
	if m.timer == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = true
	if !m.started && m.state == commentOn {
		m.timer.Stop()
		m.state = commentIdle
	}
}

// stop waits for a comment that is being written, and reports whether the header was sent.
func (m *comments) stop() (started bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
	m.state = commentStopped
	return m.started
}

// again is for a request whose header was sent.
func (m *comments) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started, m.state = true, commentIdle
}

// In the header, or in a comment once that is sent.
func (m *comments) fallBack(to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started {
		m.reply.w.Header().Set(headerFallback, to)
		return
	}
	m.sayFallback(to)
	_ = m.reply.flush() // a client that left ends the request's context
}

// The caller holds mu.
func (m *comments) sayFallback(to string) {
	_, _ = m.reply.Write([]byte(": rouse fallback=" + to + "\n\n"))
}

// A shorter estimate was wrong.
const leastExpected = 50 * time.Millisecond

func (m *comments) tick() {
	m.mu.Lock()
	f := m.f
	m.mu.Unlock()
	stage := f.Stage() // unlocked: it may ask others
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != commentOn {
		return
	}
	if !m.started {
		m.started = true
		to := m.reply.w.Header().Get(headerFallback)
		m.reply.w.Header().Del(headerFallback) // another one may answer in the end
		m.reply.streamHeader()
		if to != "" {
			m.sayFallback(to)
		}
	}
	if m.sent {
		stage = queue.Stage{Word: "first-token"}
	}
	line := fmt.Sprintf(": rouse stage=%s waited=%.1fs", word(stage.Word), time.Since(m.since).Seconds())
	if stage.Expected >= leastExpected {
		line += fmt.Sprintf(" expected=%.1fs", stage.Expected.Seconds())
	}
	if stage.Progress > 0 {
		line += fmt.Sprintf(" progress=%.0f%%", 100*stage.Progress)
	}
	if stage.Why != "" {
		line += fmt.Sprintf(" why=%q", stage.Why)
	}
	if _, err := m.reply.Write([]byte(line + "\n\n")); err == nil {
		_ = m.reply.flush() // a client that left ends the request's context
	}
	m.timer.Reset(m.a.cfg.CommentEvery)
}

func (r *reply) streamHeader() {
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // or nginx buffers the comments
	h.Set("Trailer", "Server-Timing")
	r.w.WriteHeader(http.StatusOK)
}

func word(stage string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '-'
		}
		return r
	}, stage)
}
