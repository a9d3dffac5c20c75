package activator

import (
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// maxResumed is how often one stream may go on at another instance: a request that ends instances must not end them all.
const maxResumed = 3

// resumable says whether a stream that is cut may go on at another instance, which generates what is left of it:
//
//  1. Its client has not refused that.
//  2. It is a stream of OpenAI's completions as they are: an API that the instance translates has events of its own.
//  3. Nobody before us decides where the request goes.
//
// That the instances can do it is for the function's runtime to say.
func (c *call) resumable() bool {
	switch {
	case c.req.in.Header.Get(control.HeaderResume) == "off": // 1
		return false
	case !c.req.Stream, c.req.in.URL.Path != "/v1/chat/completions" && c.req.in.URL.Path != "/v1/completions": // 2
		return false
	}
	return c.req.via == nil && !c.atOnce // 3
}

// elsewhere has a stream go on that its instance has cut: the slot is given back, and the request waits for another.
func (c *call) elsewhere(s *slot, err error) {
	c.sent.resumed++
	c.f.giveBack(s, api.CodeStreamCut)
	c.f.metrics.Retried(api.CodeStreamCut)
	c.a.log.Warn("answer cut, and goes on elsewhere", "request", c.req.id, "function", c.f.name, "instance", s.instance.ID, "times", c.sent.resumed, "error", err)
	c.reply.comment.again()
}
