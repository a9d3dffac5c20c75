package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// TestEventsAsJSON: events are printed as structured CloudEvents whose durations are texts, and else as they came.
func TestEventsAsJSON(t *testing.T) {
	var in, out bytes.Buffer
	for _, e := range []api.Event{
		api.NewEvent(api.EventDemand, "/a", "ns/f", api.Demand{Function: "ns/f", Waiting: 2, OldestAge: 1500 * time.Millisecond}),
		api.NewEvent(api.EventInstanceState, "/a", "ns/f", api.InstanceStatus{Instance: "i", LoadTime: 2 * time.Minute, Steps: []api.Step{{Name: "x", Took: 7}}}),
		api.NewEvent(api.EventWoken, "/a", "ns/f", api.WakeTrace{Total: time.Millisecond, Spans: []api.Span{{Name: "hold", Took: 9 * time.Microsecond}}}),
		api.NewEvent(api.EventFunction, "/a", "ns/f", api.Function{SleepAfter: 90 * time.Second}),
		api.NewEvent(api.EventDecision, "/a", "ns/f", api.Decision{Action: "wake", Reason: "17"}),
		api.NewEvent("another", "/a", "ns/f", map[string]int{"took": 12345}),
		api.NewEvent(api.EventDemand, "/a", "ns/f", "strange"),
	} {
		line, err := cloudevent.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd := &cobra.Command{}
	Flag(cmd, "text", "json")
	cmd.SetOut(&out)
	if err := cmd.Flags().Set("output", "json"); err != nil {
		t.Fatal(err)
	}
	if err := Events(cmd, &in, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range [][]string{
		{`"oldestAge":"1.5s"`, `"waiting":2`}, {`"loadTime":"2m0s"`, `"took":"7ns"`}, {`"total":"1ms"`, `"took":"9µs"`},
		{`"sleepAfter":"1m30s"`}, {`"action":"wake"`}, {`"took":12345`}, {`"data":"strange"`},
	} {
		for _, w := range want {
			if !strings.Contains(lines[i], w) {
				t.Errorf("no %s in %s", w, lines[i])
			}
		}
		if _, err := cloudevent.Decode([]byte(lines[i])); err != nil {
			t.Errorf("%s is no CloudEvent: %v", lines[i], err)
		}
	}
}
