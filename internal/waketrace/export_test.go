package waketrace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rouse-dev/rouse/api"
)

// environment returns a getenv function for the pairs.
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
		if e, err := FromEnvironment(environment(env...), "v1", quiet); e != nil || err != nil {
			t.Errorf("%s: got %v, %v", name, e, err)
		}
	}
	span := NewTracer(nil).Root("default/m", api.Trace{}, api.PartActivator, time.Now())
	span.Start(Step{Name: api.SpanHold}).Done(nil)
	span.Done(nil)
	if got := span.Wake().Spans(time.Now(), api.Span{Took: time.Hour}); len(got) != 1 {
		t.Errorf("without an exporter %d spans are recorded, want 1", len(got))
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
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{}
			e, err := fromEnvironment(environment(c.env...), "", quiet, r)
			if err != nil {
				t.Fatal(err)
			}
			NewTracer(e).Root("default/m", api.Trace{}, api.PartActivator, time.Now()).Done(nil)
			end(t, e)
			if len(r.to) != 1 || r.to[0] != c.want {
				t.Errorf("%v: posted to %v, want %s", c.env, r.to, c.want)
			}
		})
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

// end ends an exporter, which exports what it has.
func end(t *testing.T, e *Exporter) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Error(err)
	}
}

// receiver answers with the statuses in order, then with success.
type receiver struct {
	mu       sync.Mutex
	statuses []int
	to       []string
	got      []*coltracepb.ExportTraceServiceRequest
	headers  []http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	in := &coltracepb.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(raw, in); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to, r.got, r.headers = append(r.to, req.URL.String()), append(r.got, in), append(r.headers, req.Header)
	w := httptest.NewRecorder()
	if len(r.statuses) > 0 {
		w.WriteHeader(r.statuses[0])
		_, _ = w.WriteString(strings.Repeat("no ", 5000))
		r.statuses = r.statuses[1:]
	}
	return w.Result(), nil
}

// exporter returns an Exporter that posts to r.
func exporter(t *testing.T, r *receiver, log *slog.Logger) *Exporter {
	e, err := fromEnvironment(environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s3cret@c:4318", "OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x, k=v",
		"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"), "v1", log, r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExport checks that each part is a service, and that temporarily refused spans are resent.
func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{statuses: []int{503, 429}}
		e := exporter(t, r, quiet)
		tracer, at := NewTracer(e), time.Unix(1000, 0)
		root := tracer.Root("default/m", api.Trace{ID: theTrace, Span: theSpan}, api.PartActivator, at)
		hold := root.Start(Step{Name: api.SpanHold, Part: api.PartActivator, Began: at, Ended: at.Add(time.Second)})
		decision := hold.Start(Step{Name: "decision", Part: api.PartAutoscaler, Note: "w" + strings.Repeat("ü", 400), Began: at})
		decision.DoneAt(at.Add(time.Second), errors.New("what a program wrote: \xff"))
		hold.Start(Step{Name: api.StepWaking, Part: api.PartInstance, Instance: "m-1", Began: at, Ended: at.Add(time.Second)})
		tracer.Root("default/m", api.Trace{ID: theTrace, Span: theSpan, Unsampled: true}, api.PartActivator, at).Done(nil)
		root.DoneAt(at.Add(time.Second), nil)
		time.Sleep(10 * time.Second)
		tracer.Root("default/last", api.Trace{}, api.PartAutoscaler, at).DoneAt(at.Add(time.Second), nil)
		end(t, e)
		if len(r.got) != 4 {
			t.Fatalf("got %d posts, want two that are refused, one, and the last", len(r.got))
		}
		if h := r.headers[0]; h.Get("Authorization") != "Bearer x" || h.Get("K") != "v" || h.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("got the header %v", h)
		}
		got := map[string]string{} // the parent of each service's span, by name
		for _, post := range r.got[2:] {
			for _, rs := range post.GetResourceSpans() {
				about := map[string]string{}
				for _, a := range rs.GetResource().GetAttributes() {
					about[a.GetKey()] = a.GetValue().GetStringValue()
				}
				if about["deployment.environment"] != "test" || about["service.version"] != "v1" {
					t.Errorf("the resource is %v", about)
				}
				for _, ss := range rs.GetScopeSpans() {
					for _, s := range ss.GetSpans() {
						got[about["service.name"]+" "+s.GetName()] = string(s.GetParentSpanId())
						if s.GetStartTimeUnixNano() != 1000e9 || s.GetEndTimeUnixNano() != 1001e9 {
							t.Errorf("%s is from %d to %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
						}
					}
				}
			}
		}
		client := spanContext(api.Trace{ID: theTrace, Span: theSpan}).SpanID()
		rootID, holdID := root.SpanContext().SpanID(), hold.SpanContext().SpanID()
		want := map[string]string{
			"rouse-activator wake m": string(client[:]), "rouse-activator hold": string(rootID[:]), "rouse-autoscaler decision": string(holdID[:]),
			"rouse-function waking": string(holdID[:]), "rouse-autoscaler wake last": "",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTheUserOfAnEndpoint checks that the user in the URL is sent, unless there is another credential.
func TestTheUserOfAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		e, err := fromEnvironment(environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s3cret@c:4318"), "", quiet, r)
		if err != nil {
			t.Fatal(err)
		}
		NewTracer(e).Root("default/m", api.Trace{}, api.PartActivator, time.Now()).Done(nil)
		end(t, e)
		if got, want := r.headers[0].Get("Authorization"), "Basic bWU6czNjcmV0"; got != want {
			t.Errorf("got the credential %q, want %q", got, want)
		}
	})
}

// TestExportFails checks that nothing waits, and that lost spans are logged at most once a minute.
func TestExportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		for range 100 {
			r.statuses = append(r.statuses, 400)
		}
		var log bytes.Buffer
		e := exporter(t, r, slog.New(slog.NewTextHandler(&log, nil)))
		tracer := NewTracer(e)
		for range 5000 { // more than the queue holds
			tracer.Root("default/m", api.Trace{}, api.PartActivator, time.Now()).Done(nil)
		}
		for range 20 {
			tracer.Root("default/m", api.Trace{}, api.PartActivator, time.Now()).Done(nil)
			time.Sleep(time.Second)
		}
		end(t, e)
		if strings.Contains(log.String(), "s3cret") {
			t.Errorf("the log has a password:\n%s", log.String())
		}
		if n := log.Len(); n > 2000 {
			t.Errorf("the log says all that a receiver says, %d bytes", n)
		}
		if n := strings.Count(log.String(), "traces can't be exported"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, log.String())
		}
	})
}
