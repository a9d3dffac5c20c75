package activator

import (
	"errors"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// maxResumed is how often one stream may be resumed at another instance: a request that kills instances must not kill
// them all.
const maxResumed = 3

// streams are the paths whose streams can be resumed at another instance.
var streams = map[string]bool{
	"/v1/chat/completions": true, "/v1/completions": true, "/v1/messages": true, "/v1/responses": true, "/api/chat": true, "/api/generate": true,
}

// mayMove reports whether the request may continue at another instance: its client has not opted out, and no gateway or
// front door before us decides where it goes.
func (c *call) mayMove() bool {
	return c.req.in.Header.Get(control.HeaderResume) != "off" && c.req.via == nil && !c.atOnce
}

// resumable reports whether it is a stream that may be resumed at another instance if it is cut, of an API whose state
// instances report. Whether the instances can do it depends on the function's runtime.
func (c *call) resumable() bool {
	return c.mayMove() && streams[c.req.in.URL.Path] && c.streamed()
}

// streamed reports whether the client wants a stream. In Ollama's API that is the default.
func (c *call) streamed() bool {
	if c.req.Stream || !c.req.ollama {
		return c.req.Stream
	}
	said, found := c.req.body.Object().Find("stream")
	return !found || string(said) != "false"
}

// mostRestarted is how often a request that is no stream may be restarted because its instance gives way: the
// computed part is lost.
const mostRestarted = 2

// restartable reports whether it is no stream, and may be restarted if its instance gives way before it answers: it must
// only compute something with a model, without side effects. The number of restarts is limited.
func (c *call) restartable() bool {
	return c.mayMove() && !c.streamed() && operations[c.req.in.URL.Path] != "" && c.sent.moved < mostRestarted
}

// elsewhere prepares to resume a stream that was cut or whose instance gives way: the slot is given back, and the
// request waits for another. It may wait as long as a new request.
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

// gaveWay records that the instance of s gave way.
func (c *call) gaveWay(s *queue.Slot) {
	c.sent.moved++
	c.sent.last = api.CodeMoved
	c.f.Metrics.Retried(api.CodeMoved)
	c.a.log.Info("its instance gives way, and it goes on elsewhere", "request", c.req.id, "function", c.f.Name, "instance", s.Instance, "times", c.sent.moved)
}
