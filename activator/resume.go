package activator

import (
	"errors"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// maxResumed is how often one stream may go on at another instance: a request that ends instances must not end them all.
const maxResumed = 3

// streams are the paths whose streams can go on at another instance.
var streams = map[string]bool{
	"/v1/chat/completions": true, "/v1/completions": true, "/v1/messages": true, "/v1/responses": true, "/api/chat": true, "/api/generate": true,
}

// resumable says whether a stream that is cut may go on at another instance, which generates what is left of it:
//
//  1. Its client has not refused that.
//  2. It is a stream of an API whose state the instance tells.
//  3. Nobody before us decides where the request goes.
//
// That the instances can do it is for the function's runtime to say.
func (c *call) resumable() bool {
	switch {
	case c.req.in.Header.Get(control.HeaderResume) == "off": // 1
		return false
	case !streams[c.req.in.URL.Path] || !c.streamed(): // 2
		return false
	}
	return c.req.via == nil && !c.atOnce // 3
}

// streamed says whether the client wants a stream. In Ollama's API it does unless it says otherwise.
func (c *call) streamed() bool {
	if c.req.Stream || !c.req.ollama {
		return c.req.Stream
	}
	said, found := c.req.body.Object().Find("stream")
	return !found || string(said) != "false"
}

// mostRestarted is how often a request that is no stream may be tried again whole because its instance gives way: what it had computed is lost.
const mostRestarted = 2

// restartable says whether a request can be tried again whole, if its instance gives way before it has answered: its client has not refused
// that, it asks for something that a model computes and that changes nothing, nobody before us decides where it goes, and it has not been
// tried again too often.
func (c *call) restartable() bool {
	return c.req.in.Header.Get(control.HeaderResume) != "off" && !c.streamed() && operations[c.req.in.URL.Path] != "" &&
		c.req.via == nil && !c.atOnce && c.sent.moved < mostRestarted
}

// elsewhere has a stream go on that its instance has cut, or that gives way: the slot is given back, and the request waits for another. It may
// wait as long as one that has just come.
func (c *call) elsewhere(s *slot, err error) {
	c.sent.before = c.reply.timing
	c.wait.since, c.wait.paused, c.wait.entry = time.Time{}, 0, nil
	c.reply.comment.again()
	if errors.Is(err, errMoved) {
		c.f.giveBack(s, api.CodeMoved)
		c.gaveWay(s)
		return
	}
	c.sent.resumed++
	c.sent.last = api.CodeStreamCut
	c.f.giveBack(s, api.CodeStreamCut)
	c.f.metrics.Retried(api.CodeStreamCut)
	c.a.log.Warn("answer cut, and goes on elsewhere", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "times", c.sent.resumed, "error", err)
}

// gaveWay counts that the instance of s has given way, and the request with it.
func (c *call) gaveWay(s *slot) {
	c.sent.moved++
	c.sent.last = api.CodeMoved
	c.f.metrics.Retried(api.CodeMoved)
	c.a.log.Info("its instance gives way, and it goes on elsewhere", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "times", c.sent.moved)
}
