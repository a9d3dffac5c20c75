package autoscaler

import (
	"fmt"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// The IDs of the trace, and of its root span, that an activator has begun.
const (
	wakeTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	wakeRoot  = "00f067aa0ba902b7"
)

// wokenRecord returns an activator's record of a wake: the request was held, and got its first token in the last part of
// total.
func wokenRecord(f api.FunctionName, id api.InstanceID, start time.Time, total, firstToken time.Duration) api.WakeTrace {
	o := api.WakeTrace{Function: f, Instance: id, Activator: "act", Trace: wakeTrace, Root: wakeRoot, Start: start, Total: total}
	o.Add(api.Span{ID: "00000000000000a1", Name: api.SpanHold, Part: api.PartActivator, Took: total - firstToken})
	o.Add(api.Span{ID: "00000000000000a2", Name: api.SpanFirstToken, Part: api.PartActivator, After: total - firstToken, Took: firstToken})
	return o
}

// recordText formats a record: each span on a line, indented by its depth, with its start and its duration.
func recordText(o api.WakeTrace) string {
	parents := map[string]string{}
	for _, s := range o.Spans {
		parents[s.ID] = s.Parent
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s in %s\n", o.Path, o.By, o.Total)
	for _, s := range o.Spans {
		for p := s.Parent; parents[p] != ""; p = parents[p] {
			b.WriteString("  ")
		}
		fmt.Fprintf(&b, "%s %s", s.Part, s.Name)
		if s.Who != "" {
			fmt.Fprintf(&b, " of %s", s.Who)
		}
		fmt.Fprintf(&b, ": %s +%s", s.After, s.Took)
		if s.Note != "" {
			fmt.Fprintf(&b, " (%s)", s.Note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
