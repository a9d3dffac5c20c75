package supervise

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dying is the answer of a server that is about to end.
type dying struct{}

func (dying) Error() string { return "500: its engine is dead" }
func (dying) Dying() bool   { return true }

// TestJudge: the outcome of a probe, combined with the requests' progress.
func TestJudge(t *testing.T) {
	silent := result{err: context.DeadlineExceeded, took: 10 * time.Second}
	before := traffic{running: 1, entered: 7, moved: 3}
	for name, tc := range map[string]struct {
		busy, stopped, ended bool
		r                    result
		now                  traffic
		silent               int // unanswered probes before
		want                 string
		left                 int // the same afterwards
	}{
		"it answers":                                 {busy: true, silent: 2, now: before},
		"it answers idle":                            {now: traffic{entered: 7, moved: 3}},
		"requests were answered meanwhile":           {busy: true, silent: 2, r: silent, now: traffic{running: 1, entered: 7, moved: 4}},
		"it counts tokens":                           {busy: true, silent: 2, r: result{err: fmt.Errorf("probe: %w", errMoves)}, now: before},
		"its process has ended":                      {busy: true, ended: true, silent: 2, r: silent, now: before, left: 2},
		"nobody cares any more":                      {busy: true, stopped: true, silent: 2, r: silent, now: before, left: 2},
		"nobody listens":                             {busy: true, r: result{err: fmt.Errorf("dial: %w", syscall.ECONNREFUSED)}, now: before, want: "can't be reached"},
		"its engine has died, and requests run":      {busy: true, r: result{err: fmt.Errorf("probe: %w", dying{}), took: time.Millisecond}, now: before, want: "has died"},
		"its socket is gone":                         {r: result{err: fmt.Errorf("dial: %w", syscall.ENOENT)}, now: traffic{entered: 7, moved: 3}, want: "can't be reached"},
		"idle and silent":                            {r: silent, now: traffic{entered: 7, moved: 3}, left: 1},
		"idle and silent for long":                   {silent: 2, r: silent, now: traffic{entered: 7, moved: 3}, want: "an idle one has not answered 3 probes in a row"},
		"idle, it refuses":                           {r: result{err: context.Canceled, took: time.Millisecond}, now: traffic{entered: 7, moved: 3}, want: "an idle one refuses a probe"},
		"one came and went, it was silent before":    {silent: 1, r: silent, now: traffic{entered: 8, moved: 3}, left: 1},
		"a request came while an idle one was asked": {r: silent, now: traffic{running: 1, entered: 8, moved: 3}},
		"one came and went":                          {r: silent, now: traffic{entered: 8, moved: 3}},
		"busy, it refuses":                           {busy: true, silent: 2, r: result{err: context.Canceled, took: time.Millisecond}, now: before},
		"busy and silent, not for long":              {busy: true, silent: 1, r: silent, now: before, left: 2},
		"busy and silent for long":                   {busy: true, silent: 2, r: silent, now: before, want: "1 requests run, no part of an answer came in 25s", left: 3},
	} {
		h := health{cfg: &Config{ProbeInterval: 15 * time.Second, ProbeTimeout: 5 * time.Second}, last: traffic{running: before.running, entered: 7, moved: 3}, silent: tc.silent}
		op := &operation{busy: tc.busy, stopped: tc.stopped}
		op.patience = 3
		got := h.judge(op, tc.r, tc.ended, tc.now)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		if got == "" && h.silent != tc.left {
			t.Errorf("%s: %d probes in a row were not answered, want %d", name, h.silent, tc.left)
		}
	}
}
