package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// waits shows the server's comments: on a terminal as a bar, else as they come.
func (c *conversation) waits(text string) {
	text = strings.TrimPrefix(text, "rouse ")
	if c.quiet || !strings.Contains(text, "stage=") {
		return
	}
	if c.bar == nil {
		fmt.Fprintln(c.errs, text)
		return
	}
	c.bar.says(c.options.model, readWait(text), time.Now())
}

func (c *conversation) clear() {
	if c.bar != nil {
		c.bar.clear()
	}
}

// waitBar advances between the server's reports. It is safe for many goroutines.
type waitBar struct {
	mu    sync.Mutex // guards shown
	shown *render.Bar
}

func newWaitBar(w io.Writer) *waitBar {
	b := &waitBar{}
	b.shown = render.NewBar(w, &b.mu)
	return b
}

func (b *waitBar) says(model string, w wait, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what := model + ": " + w.stage
	if w.why != "" {
		what += ", " + w.why
	}
	b.shown.Show(0, func() (string, float64) { return what, w.share(time.Since(at)) })
}

func (b *waitBar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown.Hide()
}

type wait struct {
	stage, why       string
	waited, expected time.Duration
	progress         float64
}

// readWait parses `stage=loading waited=1.2s expected=3.0s progress=40% why="…"`.
func readWait(text string) (w wait) {
	text, why, _ := strings.Cut(text, " why=")
	w.why, _ = strconv.Unquote(why)
	for field := range strings.FieldsSeq(text) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "stage":
			w.stage = value
		case "waited":
			w.waited, _ = time.ParseDuration(value)
		case "expected":
			w.expected, _ = time.ParseDuration(value)
		case "progress":
			w.progress, _ = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		}
	}
	return w
}

// share is 0 if it is unknown; since is after the comment.
func (w wait) share(since time.Duration) float64 {
	share := w.progress / 100
	if w.expected > 0 {
		share = max(share, float64(w.waited+since)/float64(w.waited+w.expected))
	}
	return min(share, 1)
}
