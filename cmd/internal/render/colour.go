package render

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/rouse-dev/rouse/api"
)

// screen describes where a command prints.
type screen struct {
	width  int  // columns of the terminal; 0: it is none, and lines are not cut
	colour bool // states may be coloured
}

// screenOf describes w. Colours are for terminals without $NO_COLOR (https://no-color.org).
func screenOf(w io.Writer) screen {
	if h, is := w.(*harmless); is {
		w = h.w
	}
	if !IsTerminal(w) {
		return screen{}
	}
	s := screen{width: usualWidth, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil && width > 0 {
		s.width = width
	}
	return s
}

// usualWidth is the assumed width of a terminal.
const usualWidth = 80

// stateColours are the colours of [Summary]'s words: serving, resting, changing, failed.
var stateColours = map[string]string{
	string(api.Awake): "32", string(api.Asleep): "36",
	string(api.Starting): "33", string(api.Draining): "33",
	string(api.Unhealthy): "31", "failed": "31",
	Word(api.Gone): "2",
}

// paint returns a text in a colour (ECMA-48); empty: none.
func (s screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}
