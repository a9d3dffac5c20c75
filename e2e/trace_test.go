package e2e

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rouse-dev/rouse/api"
)

// collector receives traces as an OpenTelemetry collector does.
type collector struct {
	mu    sync.Mutex
	spans map[string]collected // by ID
	bad   []string
}

// collected is a span as it came.
type collected struct {
	Service, TraceID, SpanID, ParentID, Name string
	Start, End                               uint64
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var in coltracepb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(raw, &in)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.bad = append(c.bad, fmt.Sprintf("%s %s %v: %v: %s", r.Method, r.URL, r.Header, err, raw))
	}
	for _, rs := range in.GetResourceSpans() {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				s := collected{service, hex.EncodeToString(span.GetTraceId()), hex.EncodeToString(span.GetSpanId()), hex.EncodeToString(span.GetParentSpanId()), span.GetName(),
					span.GetStartTimeUnixNano(), span.GetEndTimeUnixNano()}
				if old, found := c.spans[s.SpanID]; found {
					c.bad = append(c.bad, fmt.Sprintf("the ID of %v is that of %v", s, old))
				}
				c.spans[s.SpanID] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// of are the spans of a trace.
func (c *collector) of(trace string) []collected {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []collected
	for _, s := range c.spans {
		if s.TraceID == trace {
			all = append(all, s)
		}
	}
	return all
}

// TestTraces: a cold start and a wake are one connected trace each, of all parts, with
// the IDs of the record; the client's own trace goes on in it.
func TestTraces(t *testing.T) {
	c := &collector{spans: map[string]collected{}}
	receiver := httptest.NewServer(c)
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	p := newServer(t)
	const client = "4bf92f3577b34da6a3ce929d0e0e4736"
	const clientSpan = "00f067aa0ba902b7"
	for _, want := range []struct {
		path        api.Path
		by          api.Part
		traceparent string
		names       []string
	}{
		{"cold", api.PartAutoscaler, "", []string{"rouse-activator hold", "rouse-autoscaler decision", "rouse-autoscaler start", "rouse-function loading"}},
		{"hot", api.PartActivator, "00-" + client + "-" + clientSpan + "-01", []string{"rouse-activator hold", "rouse-activator wake call", "rouse-function waking"}},
	} {
		if want.path == "hot" {
			if _, err := p.rouse("sleep", "pico"); err != nil {
				t.Fatal(err)
			}
		}
		complete(t, p.server.url, want.traceparent)
		var o api.WakeTrace
		if err := retry(func() error {
			out, err := p.rouse("trace", "wake", "pico", "-o", "json")
			if err == nil {
				o, err = wakeTrace(out)
			}
			if err != nil {
				return err
			}
			if o.Path != want.path || len(o.Spans) < 4 {
				return fmt.Errorf("the last record is of a %s start", o.Path)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if o.By != want.by {
			t.Errorf("%s: woken by %q, want %q", want.path, o.By, want.by)
		}
		if want.traceparent != "" && (o.Trace != client || o.Parent != clientSpan) {
			t.Errorf("the record is of the trace %s under %s, want the client's", o.Trace, o.Parent)
		}
		if err := retry(func() error { return connected(c.of(o.Trace), o, want.names) }); err != nil {
			t.Errorf("%s: %v", want.path, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bad := range c.bad {
		t.Error(bad)
	}
}

// connected says why the spans are not the trace of o.
func connected(spans []collected, o api.WakeTrace, names []string) error {
	byID := map[string]collected{}
	var got []string
	for _, s := range spans {
		byID[s.SpanID] = s
		got = append(got, s.Service+" "+s.Name)
		if s.Start == 0 || s.End < s.Start {
			return fmt.Errorf("%s: from %d to %d", s.Name, s.Start, s.End)
		}
	}
	slices.Sort(got)
	for _, n := range append(names, "rouse-activator text_completion pico", "rouse-activator wake pico", "rouse-activator dispatch", "rouse-activator first token") {
		if !slices.Contains(got, n) {
			return fmt.Errorf("no span %q among %q", n, got)
		}
	}
	for _, s := range o.Spans {
		if e, found := byID[s.ID]; !found || e.Name != s.Name {
			return fmt.Errorf("the record's %s is not in the trace: %q", s.Name, got)
		}
	}
	for _, s := range spans {
		if _, found := byID[s.ParentID]; !found && s.ParentID != o.Parent {
			return fmt.Errorf("%s has the parent %s, which is not there", s.Name, s.ParentID)
		}
	}
	if len(spans) != len(o.Spans)+2 {
		return fmt.Errorf("%d spans came, and the record has %d, itself, and its request: %q", len(spans), len(o.Spans), got)
	}
	return nil
}

// complete has pico answer.
func complete(t *testing.T, url, traceparent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(`{"model":"pico","prompt":"hello","max_tokens":2}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		req.Header.Set("Traceparent", traceparent)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", resp.Status, raw, err)
	}
}

// wakeTrace reads what `rouse trace -o json` prints, whose durations are texts.
func wakeTrace(text string) (o api.WakeTrace, err error) {
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return o, err
	}
	number := func(in map[string]any, key string) {
		if said, is := in[key].(string); is {
			d, failed := time.ParseDuration(said)
			in[key], err = d, errors.Join(err, failed)
		}
	}
	number(v, "total")
	spans, _ := v["spans"].([]any)
	for _, span := range spans {
		if span, is := span.(map[string]any); is {
			number(span, "after")
			number(span, "took")
		}
	}
	raw, failed := json.Marshal(v)
	if err = errors.Join(err, failed); err != nil {
		return o, err
	}
	return o, json.Unmarshal(raw, &o)
}
