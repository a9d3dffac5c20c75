package render

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/rouse-dev/rouse/api"
)

// Bar is the line that commands show on a terminal while something takes long. Other output must clear it first.
// Callers of its methods hold mu, which the bar takes to redraw itself.
type Bar struct {
	w     io.Writer
	mu    sync.Locker
	now   func() (what string, share float64) // what is redrawn; nil: nothing
	timer *time.Timer
	shown *progressbar.ProgressBar
	known bool // shown has a length
	drawn bool // on the terminal's current line
}

// NewBar draws nothing yet.
func NewBar(w io.Writer, mu sync.Locker) *Bar { return &Bar{w: w, mu: mu} }

const redrawEvery = 100 * time.Millisecond

// Show draws what now returns, after a time if nothing is shown yet, and again until [Bar.Hide].
func (b *Bar) Show(after time.Duration, now func() (what string, share float64)) {
	if b.now = now; after == 0 {
		b.Draw(now())
		after = redrawEvery
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.redraw)
	}
}

func (b *Bar) redraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil {
		b.Draw(b.now())
		b.timer.Reset(redrawEvery)
	}
}

// Hide removes the bar until it is shown again.
func (b *Bar) Hide() {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.now, b.timer = nil, nil
	b.Clear()
}

const (
	barCells = 20
	beside   = 48
)

// Draw draws the bar. share is completed, below 1; 0: unknown.
func (b *Bar) Draw(what string, share float64) {
	if b.shown != nil && b.known != (share > 0) { // another stage
		b.Clear()
		b.shown = nil
	}
	if b.shown == nil {
		most := -1 // a spinner, which is drawn only here and not by its own goroutine
		if b.known = share > 0; b.known {
			most = 100
		}
		b.shown = progressbar.NewOptions(most, progressbar.OptionSetWriter(b.w), progressbar.OptionSetWidth(barCells), progressbar.OptionSetSpinnerChangeInterval(0),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	if b.known {
		_ = b.shown.Set(int(100 * max(0, min(share, 0.99)))) // a full one would be removed
	}
	width := usualWidth
	if s := screenOf(b.w); s.width > 0 {
		width = s.width
	}
	b.shown.Describe(cut(Printable(what), max(width-beside, 12), false)) // draws it
	b.drawn = true
}

// Clear removes the bar, if its line is not other output's.
func (b *Bar) Clear() {
	if b.drawn {
		_ = b.shown.Clear()
		b.drawn = false
	}
}

// Printable removes what would move the cursor.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

// Fetched formats the progress of a fetch. A total or a rate of 0 is unknown.
func Fetched(done, total, rate api.Bytes) string {
	text := done.String()
	if total > 0 {
		text += " of " + total.String()
	}
	if rate > 0 {
		text += fmt.Sprintf(", %s/s", rate)
	}
	return text
}

// Left returns how long the rest takes; 0: unknown.
func Left(done, total, rate api.Bytes) time.Duration {
	if total <= done || rate <= 0 {
		return 0
	}
	return time.Duration(float64(total-done) / float64(rate) * float64(time.Second)).Round(time.Second)
}
