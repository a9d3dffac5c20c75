package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// coming is the start or wake under way, and the steps of the last one that came up.
type coming struct {
	since   time.Time        // when it began
	startup *runtime.Startup // nil: none is under way
	trace   api.Trace        // that it is for; zero: none
	steps   []api.Step
	span    string // of the trace that the steps belong to
}

// causedBy notes the trace of a wake that came before there was a start.
func (c *coming) causedBy(t api.Trace) {
	if c.startup == nil && !t.Zero() {
		c.trace = t
	}
}

// begin begins a start or wake, or a part of one that takes its own time, by its first step.
func (c *coming) begin(step string) {
	c.since = time.Now()
	c.step(step)
}

// step begins a step. Where a start follows a fetch, it goes on with what the fetch began.
func (c *coming) step(step string) {
	if c.startup == nil {
		c.startup = runtime.NewStartup()
	}
	c.startup.Step(step)
}

// failed ends it: the steps of a failure are told to nobody.
func (c *coming) failed() { c.startup = nil }

// cameUp ends it. What comes up after this comes up for another reason.
func (c *coming) cameUp() {
	c.steps, c.span = nil, ""
	if c.startup != nil {
		c.steps, c.span = c.startup.End(), c.trace.Span
	}
	c.startup, c.trace = nil, api.Trace{}
}
