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
	file, is := w.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) {
		return screen{}
	}
	s := screen{width: usualWidth, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
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

// coloured returns a cell in the colour of its state.
func (s screen) coloured(state, cell string) string {
	colour := stateColours[state]
	if !s.colour || colour == "" {
		return cell
	}
	return "\x1b[" + colour + "m" + cell + "\x1b[0m"
}
