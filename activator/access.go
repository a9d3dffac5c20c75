package activator

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonlog"
)

// AccessLog returns a log of JSON lines to w for "json", nil for "off".
func AccessLog(setting string, w io.Writer) (*slog.Logger, error) {
	switch setting {
	case "off":
		return nil, nil
	case "json":
		return jsonlog.New(w, slog.LevelInfo), nil
	}
	return nil, fmt.Errorf("%q: want json or off", setting)
}

// Lines writes lines together after a tenth of a second: each write to a container's output costs the container
// runtime a third of our time for a request.
type Lines struct {
	mu  sync.Mutex // guards out
	out *bufio.Writer
}

// NewLines returns Lines to w. The caller flushes at the end.
func NewLines(w io.Writer) *Lines { return &Lines{out: bufio.NewWriterSize(w, 64<<10)} }

// Write implements [io.Writer].
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out.Buffered() == 0 {
		time.AfterFunc(100*time.Millisecond, l.Flush)
	}
	return l.out.Write(p)
}

// Flush writes what is delayed.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Flush() // the log is the only place to report an error
}

// Of the bodies, logAccess logs only the model's name.
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
	log.LogAttrs(r.in.Context(), level(answer.status), "request", attrs...)
}

func level(status int) slog.Level {
	if status >= http.StatusInternalServerError {
		return slog.LevelError
	}
	return slog.LevelInfo
}

const mostClip = 256

func clip(s string) string {
	if len(s) <= mostClip {
		return s
	}
	return strings.ToValidUTF8(s[:mostClip], "") + "…"
}

const (
	usageEvery  = 5 * time.Second
	usageAgain  = time.Minute
	usageUnused = time.Hour
)

const otherUses = "other"

// usageCounter counts clients' use, and reports totals: of used functions every usageEvery, of all every
// usageAgain, so that a restarted autoscaler knows the base. A key unused for usageUnused is forgotten.
type usageCounter struct {
	activator string
	emitter   api.Emitter

	mu        sync.Mutex // guards the fields below
	functions map[api.FunctionName]*usedFunction
	told      time.Time // all functions
}

type usedFunction struct {
	uses    map[usageKey]*countedUse
	changed bool
}

type usageKey struct{ tenant, name string }

type countedUse struct {
	api.Use
	last time.Time
}

func newUsageCounter(activator string, e api.Emitter) *usageCounter {
	return &usageCounter{activator: activator, emitter: e, functions: map[api.FunctionName]*usedFunction{}}
}

// Add counts a use; u.Begun is ignored.
func (c *usageCounter) Add(now time.Time, name api.FunctionName, u api.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[name]
	if f == nil {
		f = &usedFunction{uses: map[usageKey]*countedUse{}}
		c.functions[name] = f
	}
	k := usageKey{u.Tenant, u.Key}
	if f.uses[k] == nil && len(f.uses) >= api.MostUses-1 {
		k = usageKey{otherUses, otherUses}
	}
	all := f.uses[k]
	if all == nil {
		all = &countedUse{Use: api.Use{Begun: now, Tenant: k.tenant, Key: k.name}}
		f.uses[k] = all
	}
	all.last = now
	all.Requests += u.Requests
	all.Input += u.Input
	all.Cached += u.Cached
	all.Output += u.Output
	all.GPUSeconds += u.GPUSeconds
	f.changed = true
}

// Tell reports the changed functions, or all if that is due.
func (c *usageCounter) Tell(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := now.Sub(c.told) >= usageAgain
	if all {
		c.told = now
	}
	for name, f := range c.functions {
		if !all && !f.changed {
			continue
		}
		f.changed = false
		u := api.Usage{Function: name, Activator: c.activator}
		for _, s := range f.uses {
			u.Uses = append(u.Uses, s.Use)
		}
		c.emitter.Emit(api.NewEvent(api.EventUsage, "/activator/"+c.activator, name, u))
		maps.DeleteFunc(f.uses, func(_ usageKey, s *countedUse) bool { return now.Sub(s.last) >= usageUnused })
		if len(f.uses) == 0 {
			delete(c.functions, name)
		}
	}
}
