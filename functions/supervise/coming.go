package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// coming is the start or wake under way, and the steps of the last successful one.
type coming struct {
	since   time.Time        // when it began
	startup *runtime.Startup // nil: none is under way
	trace   api.Trace        // that it is for; zero: none
	steps   []api.Step
	span    string // of the trace that the steps belong to
}

// causedBy records the trace of a wake that came before a start.
func (c *coming) causedBy(t api.Trace) {
	if c.startup == nil && !t.Zero() {
		c.trace = t
	}
}

// begin begins a start or wake, or a part of one with its own time, by its first step.
func (c *coming) begin(step string) {
	c.since = time.Now()
	c.step(step)
}

// step begins a step. A start after a fetch continues the fetch's record.
func (c *coming) step(step string) {
	if c.startup == nil {
		c.startup = runtime.NewStartup()
	}
	c.startup.Step(step)
}

// failed ends it without a record.
func (c *coming) failed() { c.startup = nil }

// cameUp ends it successfully, and clears its trace.
func (c *coming) cameUp() {
	c.steps, c.span = nil, ""
	if c.startup != nil {
		c.steps, c.span = c.startup.End(), c.trace.Span
	}
	c.startup, c.trace = nil, api.Trace{}
}
