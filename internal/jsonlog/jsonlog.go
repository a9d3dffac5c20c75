// Package jsonlog makes the loggers that write lines of JSON.
package jsonlog

import (
	"io"
	"log/slog"
)

// New makes a logger that writes a line of JSON for each event of a level, or above. Durations are written as Go writes them ("1.5s"), as in
// lines of text: slog's own handler writes their nanoseconds.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}
