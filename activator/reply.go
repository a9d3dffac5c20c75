package activator

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

const (
	headerTiming = "Server-Timing"
	// headerInstance names the instance that answers; in a cluster that is a pod, whose name begins with its revision's.
	headerInstance = "X-Rouse-Instance"
)

// reply is what one client gets: comments while its request waits, then the answer or an error. It belongs
// to the request's goroutine; until comment.stop the connection is under the mutex of the comments.
type reply struct {
	w       http.ResponseWriter
	out     *http.ResponseController
	id      string     // the request's
	style   api.Stream // of an error event
	ollama  bool       // the client speaks Ollama's own API
	timing  forward.Timing
	comment comments
	ends    *wakeTrace // whose request ends with the next write; nil: none

	limits   *keys.Charge // of the client's key; nil: none
	usage    relay.Usage  // of the answer
	estimate tokens       // of what an instance has done for a client that has left
	answered int          // the status of an instance's answer; 0: none has answered
	instance api.InstanceID
	status   int    // what became of it; 0: nothing yet
	code     string // of the error; empty: there is none

	// state is what is known of the stream that the client gets; nil: it can't go on elsewhere. resumes says that it has not gone on too often.
	state   *relay.State
	resumes bool
	handled bool // it can't, as a program of the function's is before its runtime
	passes  bool // the front door that holds the request has asked for the state: it has the stream go on
	next    int  // the number of the event that comes, where a stream has gone on

	unread relay.WriteDeadline
}

// tokens are what a request has used. Those of its input that its instance had in the cache are in both.
type tokens struct{ input, cached, output api.Tokens }

// used is what the request has used, as well as is known: nothing where no instance has begun with it, or one has refused it.
// estimated is what its input was taken to be.
func (r *reply) used(estimated api.Tokens) tokens {
	if r.answered/100 != 2 {
		return r.estimate
	}
	output := api.Tokens(r.usage.Tokens())
	return tokens{input: cmp.Or(api.Tokens(r.usage.Prompt), estimated), cached: api.Tokens(r.usage.Cached), output: cmp.Or(output, r.estimate.output)}
}

// errAbort marks a cut answer whose end the client can only see by its connection's.
var errAbort = errors.New("abort the client's connection")

// errGoesOn marks an answer that was cut, and that another instance can go on with.
var errGoesOn = errors.New("the stream goes on elsewhere")

// errMoved marks an answer that its instance has ended to give way, and that another one can go on with.
var errMoved = errors.New("the stream is moved")

// copy writes the answer of an instance; started says that the header is sent. The error wraps an
// *[api.Error] if the answer was cut, [errAbort] too if the client does not know yet, and is another if
// the client left. ctx is the call's.
func (r *reply) copy(ctx context.Context, from api.InstanceID, answer *forward.Answer, started bool) error {
	if started {
		return r.copyLate(ctx, answer)
	}
	h := r.w.Header()
	answer.Header(h)
	if answer.Events() {
		h.Del("Content-Length") // an error event may have to follow
	}
	r.limits.Describe(h) // whatever the instance says of its own
	h[headerTiming] = []string{r.timing.String()}
	h[headerInstance] = []string{string(from)}
	r.w.WriteHeader(answer.Status())
	return r.end(ctx, answer, answer.Copy(r))
}

// copyLate writes the answer where the header is sent: the client expects events, whatever came.
func (r *reply) copyLate(ctx context.Context, answer *forward.Answer) error {
	defer r.w.Header().Set(headerTiming, r.timing.String())
	var e *api.Error
	switch {
	case answer.Status()/100 != 2:
		e = answer.Error()
	case !answer.Events() && !(r.answered != 0 && lines(r.w.Header()) && answer.Lines()):
		e = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered a stream with something that is no event stream")
	case r.answered != 0: // it goes on
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

// end turns the end of a copied answer into an error, and sends it to a client that reads events.
func (r *reply) end(ctx context.Context, answer *forward.Answer, err error) error {
	if err == nil || errors.Is(err, forward.ErrClient) {
		return err
	}
	if r.passes && errors.Is(err, relay.ErrCut) && context.Cause(ctx) == nil {
		return errors.Join(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut, for the front door to have it go on"), err, errAbort)
	}
	if r.state != nil && (answer.Events() || answer.Lines()) && r.state.Known() && errors.Is(err, relay.ErrCut) && context.Cause(ctx) == nil {
		r.next = answer.Next()
		if r.ollama && lines(r.w.Header()) {
			r.style = api.StreamLines
		}
		switch {
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

// stays says why a stream that was cut does not go on elsewhere; empty where nobody has expected that it does.
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

// event writes an error as the last event of a stream, with the number next.
func (r *reply) event(e *api.Error, next int) error {
	if _, err := r.Write(r.style.Error(e, next)); err != nil {
		return err
	}
	return r.Flush()
}

// withID is e with the request's id where the reason is only in the log: the operator finds it by the id.
func withID(e *api.Error, id string) *api.Error {
	switch e.Code {
	case api.CodeStartFailed, api.CodeRuntimeFailed, api.CodeUnhealthy:
		t := *e
		t.Message += " (request " + id + ")"
		return &t
	}
	return e
}

// Write writes to the client. A client that does not read for too long has left.
func (r *reply) Write(p []byte) (int, error) {
	r.unread.Move(r.out, len(p))
	n, err := r.w.Write(p)
	if r.ends != nil { // what follows is not the wake's work
		r.ends.firstByte()
		r.ends = nil
	}
	return n, err
}

// Flush sends what was written.
func (r *reply) Flush() error { return r.out.Flush() }
