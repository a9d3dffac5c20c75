// Package jsonlog creates JSON loggers.
package jsonlog

import (
	"io"
	"log/slog"
)

// New returns a logger that writes lines of JSON. Durations are as in text logs ("1.5s"), not nanoseconds.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}
