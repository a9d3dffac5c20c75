package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/rouse-dev/rouse/api"
)

// Bar is the line that all commands show while something takes long: what is done, and how much of it. It is for a
// terminal, and for one goroutine at a time. Whoever prints something else clears it first.
type Bar struct {
	w     io.Writer
	shown *progressbar.ProgressBar
	known bool // shown has a length, else it is a spinner
	drawn bool // it stands in its line
}

// NewBar makes a bar on w, a terminal. It draws nothing yet.
func NewBar(w io.Writer) *Bar { return &Bar{w: w} }

// barCells is the width of the bar itself, and beside what else stands in its line.
const (
	barCells = 20
	beside   = 48
)

// Draw draws the bar as it is now. share is how much is done, below 1; 0: nobody knows.
func (b *Bar) Draw(what string, share float64) {
	if b.shown != nil && b.known != (share > 0) { // another stage, of which more or less is known
		b.Clear()
		b.shown = nil
	}
	if b.shown == nil {
		most := -1 // unknown: a spinner, which is drawn here only and not by a goroutine of its own
		if b.known = share > 0; b.known {
			most = 100
		}
		b.shown = progressbar.NewOptions(most, progressbar.OptionSetWriter(b.w), progressbar.OptionSetWidth(barCells), progressbar.OptionSetSpinnerChangeInterval(0),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	if b.known {
		_ = b.shown.Set(int(100 * max(0, min(share, 0.99)))) // a full one would be taken away
	}
	width := usualWidth
	if s := screenOf(b.w); s.width > 0 {
		width = s.width
	}
	b.shown.Describe(cut(oneLine(what), max(width-beside, 12), false)) // draws it
	b.drawn = true
}

// Clear takes the bar off its line. Where none stands in it, the line is what somebody else printed, and stays.
func (b *Bar) Clear() {
	if b.drawn {
		_ = b.shown.Clear()
		b.drawn = false
	}
}

// oneLine is a text without what would move the cursor.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

// Fetched says how far a fetch is: "283 MiB of 676 MiB, 11 MiB/s". A total or a rate of 0 is unknown.
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

// Left is how long the rest takes at that rate; 0: nobody knows.
func Left(done, total, rate api.Bytes) time.Duration {
	if total <= done || rate <= 0 {
		return 0
	}
	return time.Duration(float64(total-done) / float64(rate) * float64(time.Second)).Round(time.Second)
}
