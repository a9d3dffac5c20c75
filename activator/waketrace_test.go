package activator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// wakeTraces collects an activator's reports of wakes.
type wakeTraces struct {
	mu      sync.Mutex // guards the fields below
	demands []api.Demand
	told    []api.WakeTrace

	exported *tracetest.SpanRecorder
}

func (l *wakeTraces) Emit(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Type {
	case api.EventDemand:
		var d api.Demand
		_ = json.Unmarshal(e.Data, &d)
		l.demands = append(l.demands, d)
	case api.EventWoken:
		var o api.WakeTrace
		_ = json.Unmarshal(e.Data, &o)
		l.told = append(l.told, o)
	}
}

func (l *wakeTraces) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

// traceBench returns a bench that collects its wake traces.
func traceBench(t *testing.T) (*bench, *wakeTraces, *http.Header) {
	l, carried := &wakeTraces{exported: tracetest.NewSpanRecorder()}, &http.Header{}
	transport := api.NewTransport(4)
	t.Cleanup(transport.CloseIdleConnections)
	waker := control.New(roundTrip(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		*carried = r.Header.Clone()
		l.mu.Unlock()
		return transport.RoundTrip(r)
	}), nil)
	b := startBench(t, nil, func(d *Deps) { d.Emitter, d.Waker, d.Traces = l, waker, waketrace.ExportTo(l.exported) })
	b.a.deps.Traces = nil // no spans of requests
	return b, l, carried
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const theClient = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestTraceOfAWake: the activator's record of its own wake, in the client's trace. The instance's report of its wake
// may come before the answer to the speculative request, or after it.
func TestTraceOfAWake(t *testing.T) {
	t.Run("the wake ends first", func(t *testing.T) { traceOfAWake(t, false) })
	t.Run("the request is answered first", func(t *testing.T) { traceOfAWake(t, true) })
}

func traceOfAWake(t *testing.T, answeredFirst bool) {
	b, l, carried := traceBench(t)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 20 * time.Millisecond
	i.status.Steps = []api.Step{{Name: api.StepWaking, Took: 15 * time.Millisecond}, {Name: api.StepProbing, After: 15 * time.Millisecond, Took: 4 * time.Millisecond}}
	i.before = func() { // a wake that ends before the demand is sent has no event
		b.eventually("the demand is told", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.demands) > 0 })
	}
	answered := make(chan struct{})
	if answeredFirst {
		i.after = func() { <-answered }
	} else {
		i.chat = func(w http.ResponseWriter, r *http.Request) {
			b.eventually("the activator knows that it is awake", func() bool { st, _ := b.queue(name).Best(); return st.Ready() })
			answerOnce(w, r)
		}
	}
	b.grant(i, 1)
	if resp, body := b.post(chatPath, warmBody, "Traceparent", theClient); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	close(answered)
	b.eventually("the trace is told", func() bool { return l.count() == 1 })
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.told[0]
	client, _ := api.ParseTrace(theClient)
	if o.Function != name || o.Instance != "m-0001" || o.By != api.PartActivator || o.Activator != "test" || o.Trace != client.ID || o.Parent != client.Span || o.Root == client.Span {
		t.Errorf("got %+v", o)
	}
	var names []string
	byName := map[string]api.Span{}
	for _, s := range o.Spans {
		names = append(names, s.Name)
		byName[s.Name] = s
		if s.After < 0 || s.End() > o.Total {
			t.Errorf("%s lies at %s for %s in %s", s.Name, s.After, s.Took, o.Total)
		}
	}
	if got, want := strings.Join(names, ", "), "hold, wake call, waking, probing, dispatch, first token"; sorted(got) != sorted(want) {
		t.Errorf("got the spans %s, want %s", got, want)
	}
	exported := map[string]string{o.Root: "wake m"}
	for _, s := range o.Spans {
		exported[s.ID] = s.Name
	}
	for _, s := range l.exported.Ended() {
		id := s.SpanContext().SpanID().String()
		if exported[id] != s.Name() || s.SpanContext().TraceID().String() != client.ID {
			t.Errorf("the span %s %s is exported, and the record has %q", id, s.Name(), exported[id])
		}
		delete(exported, id)
	}
	if len(exported) > 0 {
		t.Errorf("not exported of the record: %v", exported)
	}
	call := byName[api.SpanWake]
	if call.Parent != byName[api.SpanHold].ID || byName[api.StepProbing].Parent != call.ID || call.Took < 20*time.Millisecond || byName[api.SpanHold].Took < call.Took {
		t.Errorf("the steps don't lie in one another: %+v", o.Spans)
	}
	if got, want := carried.Get("Traceparent"), (api.Trace{ID: client.ID, Span: call.ID}).String(); got != want {
		t.Errorf("the call to wake carries %q, want %q", got, want)
	}
	if d := l.demands[0]; d.Waiting != 1 || d.Trace != (api.Trace{ID: client.ID, Span: o.Root}).String() {
		t.Errorf("the demand is %+v", d)
	}
	for _, d := range l.demands {
		if d.Waiting == 0 && d.Trace != "" {
			t.Errorf("a demand of nobody carries the trace %s", d.Trace)
		}
	}
}

// TestTraceWithoutOldSteps: if an instance has not yet reported the steps of this wake, its record contains none of
// the earlier wake's.
func TestTraceWithoutOldSteps(t *testing.T) {
	b, l, _ := traceBench(t)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.status.Steps, i.status.StepsSpan, i.oldSteps = []api.Step{{Name: api.StepLoading, Took: time.Second}}, "00f067aa0ba902b7", true
	b.grant(i, 1)
	if resp, body := b.post(chatPath, warmBody); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	b.eventually("the trace is told", func() bool { return l.count() == 1 })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.told[0].Spans {
		if s.Part == api.PartInstance {
			t.Errorf("the record has the step %s, of a start before", s.Name)
		}
	}
}

func sorted(list string) string {
	words := strings.Split(list, ", ")
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// TestNoTrace: there is no trace if an instance is awake, or if the waiting clients have left.
func TestNoTrace(t *testing.T) {
	b, l, _ := traceBench(t)
	name := b.function("m", nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.ts.URL+chatPath, strings.NewReader(warmBody))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	b.eventually("it is held", func() bool { return b.queue(name).Activity().Waiting == 1 })
	leave()
	<-ended
	b.eventually("the trace ends with it", func() bool { return len(l.exported.Ended()) > 0 })
	if ended := l.exported.Ended(); len(ended) != 1 || ended[0].Name() != "wake m" || ended[0].Status().Code != codes.Error {
		t.Errorf("of a wake that nobody waits for %v are exported, want the whole, failed", ended)
	}
	b.instance(name, "m-0001", api.Awake)
	for range 3 {
		b.post(chatPath, warmBody)
	}
	if l.count() != 0 {
		t.Errorf("%d traces for requests that found somebody awake", l.count())
	}
}

// TestTraceOfManyWhoWait: several waiting requests make one trace, of the first one answered.
func TestTraceOfManyWhoWait(t *testing.T) {
	b, l, _ := traceBench(t)
	name := b.function("m", nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.post(chatPath, strings.Replace(warmBody, "{", `{"stream":true,`, 1)) })
	}
	b.eventually("all are held", func() bool { return b.queue(name).Activity().Waiting == 20 })
	b.instance(name, "m-0001", api.Awake)
	all.Wait()
	b.eventually("the trace is told", func() bool { return l.count() > 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.told) != 1 || l.told[0].By != "" || l.told[0].Instance != "m-0001" {
		t.Errorf("got %+v, want one trace of a wake by somebody else", l.told)
	}
}

// TestTraceGoesOnWithItsRequest: the first instance dies before its first byte, and the next one answers.
func TestTraceGoesOnWithItsRequest(t *testing.T) {
	b, l, _ := traceBench(t)
	name := b.function("m", nil)
	dies := b.instance(name, "m-0001", api.Asleep)
	dies.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		b.instance(name, "m-0002", api.Awake)
		panic(http.ErrAbortHandler)
	}
	b.grant(dies, 1)
	if resp, body := b.post(chatPath, warmBody); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	b.eventually("the trace is told", func() bool { return l.count() == 1 })
	if o := l.told[0]; o.Instance != "m-0002" || o.By != "" {
		t.Errorf("got a trace of %s by %q, want m-0002 by nobody that is known", o.Instance, o.By)
	}
}

// TestTraceFollowsItsRequest: the first instance dies before its first byte, the next one is full, and the request
// waits for a slot there.
func TestTraceFollowsItsRequest(t *testing.T) {
	b, l, _ := traceBench(t)
	name := b.function("m", nil)
	one := func(id string, s api.State) *fakeInstance { // one slot
		i := b.instance(name, id, api.Asleep)
		i.status.Concurrency = 1
		b.a.ObserveInstance(i.set(s))
		return i
	}
	dies, other := one("m-0001", api.Asleep), one("m-0002", api.Asleep)
	busy, free := make(chan struct{}), make(chan struct{})
	other.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-busy: // the second request
		default:
			close(busy)
			<-free
		}
		_, _ = io.WriteString(w, "{}")
	}
	first := make(chan struct{})
	dies.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if other.state() == api.Awake { // it is retried meanwhile
			w.Header().Set(control.HeaderRefused, api.CodeUnhealthy)
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "it died"))
			return
		}
		b.a.ObserveInstance(other.set(api.Awake))
		go func() {
			defer close(first)
			b.post(chatPath, warmBody)
		}()
		<-busy
		go func() {
			defer close(free)
			b.eventually("the request waits again", func() bool { return b.queue(name).Activity().Waiting == 1 })
		}()
		panic(http.ErrAbortHandler)
	}
	b.grant(dies, 1)
	if resp, body := b.post(chatPath, warmBody); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	<-first
	b.eventually("the trace is told", func() bool { return l.count() == 1 })
	if o := l.told[0]; o.Instance != "m-0002" || o.By != "" {
		t.Errorf("got a trace of %s by %q, want m-0002 by nobody that is known", o.Instance, o.By)
	}
}

// TestTraceOfAnUpgrade: a connection that streams both ways ends the trace when the instance answers.
func TestTraceOfAnUpgrade(t *testing.T) {
	b, l, _ := traceBench(t)
	i := b.instance(b.function("talk", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM }), "talk-0001", api.Asleep)
	i.chat = echoes
	b.grant(i, 1)
	wantEcho(t, i, strings.TrimPrefix(b.ts.URL, "http://"), "/v1/realtime?model=talk")
	b.eventually("the trace is told", func() bool { return l.count() == 1 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.told[0]; o.Instance != i.id || o.By != api.PartActivator {
		t.Errorf("got %+v", o)
	}
	for _, s := range l.told[0].Spans {
		if s.Took < 0 || s.End() > l.told[0].Total {
			t.Errorf("%s lies at %s for %s in %s", s.Name, s.After, s.Took, l.told[0].Total)
		}
	}
}
