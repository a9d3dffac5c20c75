package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// environment is one by hand.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

var quiet = slog.New(slog.DiscardHandler)

func TestNothingIsExported(t *testing.T) {
	for name, env := range map[string][]string{
		"no endpoint": {"OTEL_SERVICE_NAME", "x"},
		"disabled":    {"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
		"no exporter": {"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
	} {
		e, err := FromEnvironment(environment(env...), "v1", quiet)
		if e != nil || err != nil {
			t.Errorf("%s: got %v, %v", name, e, err)
		}
		e.Outline(wake(), api.PartActivator)
		if e.Dropped() != 0 {
			t.Errorf("%s: something was lost", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := (*Exporter)(nil).Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, "http://c:4318/v1/traces"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/"}, "https://c/otlp/v1/traces"},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/x", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://other"}, "http://c:1/x"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, "http://c:4318/v1/traces"},
	} {
		e, err := FromEnvironment(environment(c.env...), "", quiet)
		if err != nil || e.cfg.endpoint != c.want {
			t.Errorf("%v: got %v, %v, want %s", c.env, e, err, c.want)
		}
	}
	for _, bad := range [][]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT", "10s"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT", "9223372036854775807"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://me:secret@c"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "secret"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "k=secret%0A"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_RESOURCE_ATTRIBUTES", "a=%zz"},
	} {
		if e, err := FromEnvironment(environment(bad...), "", quiet); err == nil || e != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: got %v, %v, want an error that gives no secret away", bad, e, err)
		}
	}
}

// wake is an outline with a span of each part.
func wake() api.Outline {
	o := api.Outline{Function: "default/m", Instance: "m-1", Activator: "a", Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Root: "00f067aa0ba902b7", Parent: "00f067aa0ba902b8",
		Path: api.PathHot, Start: time.Unix(1000, 0), Total: time.Second}
	o.Add(api.Span{ID: "00000000000000a1", Name: api.SpanHold, Part: api.PartActivator, Took: 500 * time.Millisecond})
	o.Add(api.Span{ID: "00000000000000a2", Parent: "00000000000000a1", Name: api.SpanDecision, Part: api.PartAutoscaler, After: time.Millisecond, Took: time.Millisecond, Note: "why"})
	o.Add(api.Span{ID: "00000000000000a3", Parent: "00000000000000a1", Name: api.StepWaking, Part: api.PartInstance, After: 2 * time.Millisecond, Took: time.Millisecond})
	return o
}

// receiver answers with the statuses in their order, then with success.
type receiver struct {
	mu       sync.Mutex
	statuses []int
	got      []request
	headers  []http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var in request
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.headers = append(r.got, in), append(r.headers, req.Header)
	w := httptest.NewRecorder()
	if len(r.statuses) > 0 {
		w.WriteHeader(r.statuses[0])
		r.statuses = r.statuses[1:]
	}
	_, _ = w.WriteString("{}")
	return w.Result(), nil
}

// exporter makes one that posts to r.
func exporter(t *testing.T, r *receiver, log *slog.Logger) *Exporter {
	e, err := FromEnvironment(environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s3cret@c:4318", "OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x, k=v",
		"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"), "v1", log)
	if err != nil {
		t.Fatal(err)
	}
	e.http.Transport = r
	return e
}

func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{statuses: []int{503, 429}}
		e := exporter(t, r, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		e.Outline(wake(), api.PartActivator)
		e.Outline(wake(), api.PartAutoscaler, api.PartKubernetes)
		unsampled := wake()
		unsampled.Unsampled = true
		e.Outline(unsampled, api.PartActivator)
		time.Sleep(10 * time.Second)
		last := wake()
		last.Activator = ""
		e.Outline(last, api.PartAutoscaler)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(r.got) != 4 || e.Dropped() != 0 {
			t.Fatalf("got %d posts and %d lost spans, want two that are refused, one, and the last", len(r.got), e.Dropped())
		}
		if h := r.headers[0]; h.Get("Authorization") != "Bearer x" || h.Get("K") != "v" || h.Get("Content-Type") != "application/json" {
			t.Errorf("got the header %v", h)
		}
		type key struct{ service, name, id, parent, start, end string }
		var got []key
		for _, post := range r.got[2:] {
			for _, rs := range post.ResourceSpans {
				for _, s := range rs.ScopeSpans[0].Spans {
					got = append(got, key{rs.Resource.Attributes[0].Value.String, s.Name, s.SpanID, s.ParentID, s.Start, s.End})
				}
				if a := rs.Resource.Attributes; a[len(a)-1].Key != "deployment.environment" {
					t.Errorf("the resource is %v", a)
				}
			}
		}
		want := []key{
			{"rouse-activator", "wake m", "00f067aa0ba902b7", "00f067aa0ba902b8", "1000000000000", "1001000000000"},
			{"rouse-activator", "hold", "00000000000000a1", "00f067aa0ba902b7", "1000000000000", "1000500000000"},
			{"rouse-autoscaler", "decision", "00000000000000a2", "00000000000000a1", "1000001000000", "1000002000000"},
			{"rouse-autoscaler", "wake m", "00f067aa0ba902b7", "00f067aa0ba902b8", "1000000000000", "1001000000000"},
			{"rouse-autoscaler", "decision", "00000000000000a2", "00000000000000a1", "1000001000000", "1000002000000"},
		}
		if len(got) != len(want) {
			t.Fatalf("got %v", got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("got %v, want %v", got[i], want[i])
			}
		}
	})
}

// TestExportFails: nobody waits, what is lost is counted, and the log says so once a minute.
func TestExportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		for range 100 {
			r.statuses = append(r.statuses, 400)
		}
		var log bytes.Buffer
		e := exporter(t, r, slog.New(slog.NewTextHandler(&log, nil)))
		for range queue + 10 {
			e.Outline(wake(), api.PartActivator)
		}
		if got := e.Dropped(); got != 20 {
			t.Errorf("%d spans are lost to a full queue, want 20", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		for range 20 {
			e.Outline(wake(), api.PartActivator)
			time.Sleep(time.Second)
		}
		cancel()
		<-ended
		if strings.Contains(log.String(), "s3cret") {
			t.Errorf("the log has a password:\n%s", log.String())
		}
		if n := strings.Count(log.String(), "traces can't be exported"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, log.String())
		}
		if got := e.Dropped(); got < 20+2*queue {
			t.Errorf("%d spans are lost, want all", got)
		}
	})
}
