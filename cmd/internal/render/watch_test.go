package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestDecisions: reasons stand below one another, whatever the action and the instance are called, and so do their further lines.
func TestDecisions(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var out bytes.Buffer
	if err := Decisions(&out, []api.Decision{
		{At: at, Action: "start", Instance: "a-0001", Reason: "here 1"},
		{At: at, Action: "unhealthy", Instance: "a-00001-deployment-x", Reason: "here 2\nhere 3"},
		{At: at, Action: "wait", Reason: "here 4"},
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %q", out.String())
	}
	column := strings.Index(lines[0], "here")
	for n, line := range lines {
		got := strings.Index(line, "here")
		if n == 2 {
			got-- // a reason that goes on is one further in
		}
		if got != column {
			t.Errorf("a reason begins at %d, want %d:\n%s", got, column, out.String())
		}
	}
}
