package api

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
)

// HeaderTrace carries a trace between parts (W3C Trace Context, Level 1).
const HeaderTrace = "Traceparent"

// Trace is a W3C trace context: a position in a trace. The zero value is no trace.
type Trace struct {
	// ID is the trace ID, 32 hexadecimal digits; Span is the ID of the current span, 16 digits.
	ID   string
	Span string
	// Unsampled means that the trace's originator does not want it exported.
	Unsampled bool
}

// ParseTrace parses the value of [HeaderTrace], of version 00 or later, and reports whether it is valid.
func ParseTrace(s string) (Trace, bool) {
	// version-traceid-spanid-flags; later versions may append fields.
	if len(s) < 55 || len(s) > 512 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return Trace{}, false
	}
	t := Trace{ID: s[3:35], Span: s[36:52]}
	flags, err := hex.DecodeString(s[53:55])
	if err != nil || !isHex(s[:2]) || !isID(t.ID) || !isID(t.Span) {
		return Trace{}, false
	}
	t.Unsampled = flags[0]&1 == 0
	return t, true
}

func isID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// TraceFrom returns the trace of a request's header, or the zero value.
func TraceFrom(h http.Header) Trace {
	v := h[HeaderTrace]
	if len(v) != 1 {
		return Trace{}
	}
	t, _ := ParseTrace(v[0])
	return t
}

// Zero reports whether t is no trace.
func (t Trace) Zero() bool { return t.ID == "" }

// String returns the value of [HeaderTrace]; empty for the zero value.
func (t Trace) String() string {
	switch {
	case t.Zero():
		return ""
	case t.Unsampled:
		return "00-" + t.ID + "-" + t.Span + "-00"
	}
	return "00-" + t.ID + "-" + t.Span + "-01"
}

type traceKey struct{}

// WithTrace returns a context in which calls to other parts carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	if t.Zero() {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace that calls in ctx carry, or the zero value.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}
