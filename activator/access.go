package activator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/jsonlog"
)

// AccessLog returns the access log for a setting: "json" logs one line of JSON per request to w, "off" returns nil.
func AccessLog(setting string, w io.Writer) (*slog.Logger, error) {
	switch setting {
	case "off":
		return nil, nil // nil: no access log
	case "json":
		return jsonlog.New(w, slog.LevelInfo), nil
	}
	return nil, fmt.Errorf("%q: want json or off", setting)
}

// logAccess logs a request that has ended. Of the bodies of the request and its answer, only the model's name is
// logged.
func (c *call) logAccess() {
	log := c.a.deps.Access
	if log == nil {
		return
	}
	r, answer := &c.req, &c.reply
	attrs := make([]slog.Attr, 0, 20)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, clip(value)))
		}
	}
	millis := func(key string, d time.Duration) {
		if d == 0 { // a whole number has the same text, and is far cheaper than a fraction
			attrs = append(attrs, slog.Int64(key, 0))
			return
		}
		attrs = append(attrs, slog.Float64(key, float64(d.Round(time.Microsecond))/1e6))
	}
	text("request", r.id)
	text("client", r.peer.Client)
	if c.holder.account != nil {
		text("tenant", c.holder.account.Tenant)
		text("key", c.holder.account.Name)
	}
	text("method", r.in.Method)
	text("path", r.in.URL.Path)
	text("model", r.Model)
	text("fallback", c.insteadOf)
	if c.f != nil {
		text("function", string(c.f.Name))
	}
	text("instance", string(answer.instance))
	attrs = append(attrs, slog.Int("status", answer.status))
	text("code", answer.code)
	if r.Stream {
		attrs = append(attrs, slog.Bool("stream", true))
	}
	ended := time.Now()
	millis("duration_ms", ended.Sub(r.arrived))
	millis("hold_ms", answer.timing.Hold)
	millis("wake_ms", answer.timing.Wake)
	if answer.answered != 0 {
		millis("ttft_ms", answer.timing.Hold+answer.timing.First)
	}
	if used := c.used(); answer.answered != 0 || used != (tokens{}) {
		attrs = append(attrs, slog.Int64("input_tokens", int64(used.input)))
		if used.cached > 0 {
			attrs = append(attrs, slog.Int64("cached_tokens", int64(used.cached)))
		}
		attrs = append(attrs, slog.Int64("output_tokens", int64(used.output)))
	}
	if s := c.want.GPUSeconds; s > 0 {
		attrs = append(attrs, slog.Float64("gpu_seconds", math.Round(s*1e6)/1e6))
	}
	count := func(key string, n, least int) {
		if n >= least {
			attrs = append(attrs, slog.Int(key, n))
		}
	}
	count("attempts", c.sent.attempts, 2)
	count("resumed", c.sent.resumed, 1)
	count("moved", c.sent.moved, 1)
	c.writeAccess(log, ended, attrs)
}

// writeAccess builds the record itself: the logger's own methods would look up their caller.
func (c *call) writeAccess(log *slog.Logger, ended time.Time, attrs []slog.Attr) {
	ctx, level := context.WithoutCancel(c.req.in.Context()), level(c.reply.status)
	if !log.Enabled(ctx, level) {
		return
	}
	line := slog.NewRecord(ended, level, "request", 0)
	line.AddAttrs(attrs...)
	_ = log.Handler().Handle(ctx, line) // the log is the only place to report an error
}

// level returns Error for a failure of the server (5xx), and Info otherwise.
func level(status int) slog.Level {
	if status >= http.StatusInternalServerError {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// mostClip bounds the length of a client's value in a field of the log, in bytes.
const mostClip = 256

func clip(s string) string {
	if len(s) <= mostClip {
		return s
	}
	return strings.ToValidUTF8(s[:mostClip], "") + "…"
}
