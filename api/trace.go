package api

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"net/http"
	"strings"
)

// HeaderTrace carries a trace from one part to the next (W3C Trace Context, Level 1).
const HeaderTrace = "Traceparent"

// EnvTrace carries a trace to a process that is started for it.
const EnvTrace = "TRACEPARENT"

// Trace is where in a trace somebody is: a W3C trace context. The zero value is none.
type Trace struct {
	// ID is the trace's, 32 hexadecimal digits; Span is that of the span under way, 16 of them.
	ID   string
	Span string
	// Unsampled says that whoever began the trace does not want it exported.
	Unsampled bool
}

// NewTrace begins a trace.
func NewTrace() Trace {
	var raw [24]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return Trace{ID: hex.EncodeToString(raw[:16]), Span: hex.EncodeToString(raw[16:])}
}

// ParseTrace reads the value of [HeaderTrace], of version 00 or a later one. False:
// it is none.
func ParseTrace(s string) (Trace, bool) {
	// version-traceid-spanid-flags; later versions may have more behind the flags.
	if len(s) < 55 || len(s) > 512 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return Trace{}, false
	}
	t := Trace{ID: s[3:35], Span: s[36:52]}
	flags, err := hex.DecodeString(s[53:55])
	if err != nil || !isHex(s[:2]) || !ValidTrace(t.ID) || !ValidSpan(t.Span) {
		return Trace{}, false
	}
	t.Unsampled = flags[0]&1 == 0
	return t, true
}

// ValidTrace says whether id is the ID of a trace, ValidSpan that of a span.
func ValidTrace(id string) bool { return len(id) == 32 && isHex(id) && strings.Trim(id, "0") != "" }

// ValidSpan says whether id is the ID of a span.
func ValidSpan(id string) bool { return len(id) == 16 && isHex(id) && strings.Trim(id, "0") != "" }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// TraceFrom returns the trace that a request carries, the zero value if none.
func TraceFrom(h http.Header) Trace {
	v := h[HeaderTrace]
	if len(v) != 1 {
		return Trace{}
	}
	t, _ := ParseTrace(v[0])
	return t
}

// Zero says whether t is none.
func (t Trace) Zero() bool { return t.ID == "" }

// String is the value of [HeaderTrace]; empty for none.
func (t Trace) String() string {
	switch {
	case t.Zero():
		return ""
	case t.Unsampled:
		return "00-" + t.ID + "-" + t.Span + "-00"
	}
	return "00-" + t.ID + "-" + t.Span + "-01"
}

// Child is the same trace in another span, which key names: the words of one part
// about itself. Two parts that know the trace and the key know the span's ID
// without telling each other.
func (t Trace) Child(key ...string) Trace {
	if !t.Zero() {
		t.Span = SpanID(t.ID, key...)
	}
	return t
}

// SpanID is the ID of the span of a trace that key names.
func SpanID(trace string, key ...string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(trace)) // a hash takes everything
	for _, k := range key {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(k))
	}
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], max(h.Sum64(), 1)) // zero is no ID
	return hex.EncodeToString(raw[:])
}

type traceKey struct{}

// WithTrace returns a context in which calls to other parts carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	if t.Zero() {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace that calls in ctx carry, the zero value if none.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}
