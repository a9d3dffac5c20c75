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

// Bar is the line that commands show while something takes long: what is done, and the progress. It is for a terminal.
// Other output must clear it first. Callers of its methods hold mu, which the bar takes to redraw itself.
type Bar struct {
	w     io.Writer
	mu    sync.Locker
	now   func() (what string, share float64) // what is redrawn; nil: nothing
	timer *time.Timer
	shown *progressbar.ProgressBar
	known bool // shown has a length, else it is a spinner
	drawn bool // it is on the terminal's current line
}

// NewBar returns a bar on w, a terminal. It draws nothing yet.
func NewBar(w io.Writer, mu sync.Locker) *Bar { return &Bar{w: w, mu: mu} }

// redrawEvery is the time between two pictures of a bar.
const redrawEvery = 100 * time.Millisecond

// Show draws what now returns, after a time if nothing is shown yet, and again and again until [Bar.Hide].
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

// barCells is the width of the bar itself, beside of the rest of its line.
const (
	barCells = 20
	beside   = 48
)

// Draw draws the bar. share is the completed share, below 1; 0: unknown.
func (b *Bar) Draw(what string, share float64) {
	if b.shown != nil && b.known != (share > 0) { // another stage, with or without a known share
		b.Clear()
		b.shown = nil
	}
	if b.shown == nil {
		most := -1 // unknown: a spinner, which is drawn only here and not by a goroutine of its own
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

// Clear removes the bar from its line. If it is not drawn, the line belongs to other output, and stays.
func (b *Bar) Clear() {
	if b.drawn {
		_ = b.shown.Clear()
		b.drawn = false
	}
}

// Printable removes from a text what would move the cursor.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

// Fetched formats the progress of a fetch: "283 MiB of 676 MiB, 11 MiB/s". A total or a rate of 0 is unknown.
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

// Left returns how long the rest takes at that rate; 0: unknown.
func Left(done, total, rate api.Bytes) time.Duration {
	if total <= done || rate <= 0 {
		return 0
	}
	return time.Duration(float64(total-done) / float64(rate) * float64(time.Second)).Round(time.Second)
}
