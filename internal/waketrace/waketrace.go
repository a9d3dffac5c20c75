// Package waketrace records and exports the spans of wakes, with OpenTelemetry.
//
// A wake is one trace. The activator begins its root with the request that finds no instance awake ([Tracer.Root]). A
// [Wake] keeps the spans of this process. The function's program links no OpenTelemetry: its caller exports its steps.
//
// The package is safe for concurrent use, and nothing waits for an export.
package waketrace

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rouse-dev/rouse/api"
)

const (
	keyPart     = attribute.Key("rouse.part")
	keyFunction = attribute.Key("rouse.function")
	keyInstance = attribute.Key("rouse.instance")
	keyNote     = attribute.Key("rouse.note")
)

// Step describes a span to start.
type Step struct {
	Name     string
	Part     api.Part
	Instance api.InstanceID
	Note     string
	// A zero Began is now; with a zero Ended the span ends with [Span.Done].
	Began, Ended time.Time
}

var (
	asInternal = trace.WithSpanKind(trace.SpanKindInternal)
	asServer   = trace.WithSpanKind(trace.SpanKindServer)
	asClient   = trace.WithSpanKind(trace.SpanKindClient)
)

func attributes(all ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(slices.DeleteFunc(all, func(a attribute.KeyValue) bool { return a.Value.AsString() == "" && a.Value.AsInt64() == 0 })...)
}

// Tracer starts wakes.
type Tracer struct{ tracer trace.Tracer }

// NewTracer returns a tracer whose spans are also exported to e, if not nil.
func NewTracer(e *Exporter) *Tracer {
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(recordAll{}),
		// The exporter has the parts' names; detecting resources would take time.
		sdktrace.WithResource(resource.Empty()), sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1, LinkCountLimit: -1, AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1}),
	}
	if e != nil {
		opts = append(opts, sdktrace.WithSpanProcessor(e.batches))
	}
	return &Tracer{sdktrace.NewTracerProvider(opts...).Tracer("github.com/rouse-dev/rouse")}
}

// Span is a span of a wake. Children of a nil Span are not recorded.
type Span struct {
	trace.Span
	wake *Wake
}

// Root starts the root span of a wake of f, as a child of parent unless that is zero.
func (t *Tracer) Root(f api.FunctionName, parent api.Trace, part api.Part, began time.Time) *Span {
	ctx, kind := context.Background(), asServer
	if !parent.Zero() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanContext(parent))
	}
	if part != api.PartActivator {
		kind = asInternal
	}
	_, span := t.tracer.Start(ctx, "wake "+f.Name(), trace.WithTimestamp(began), kind, attributes(keyPart.String(string(part)), keyFunction.String(string(f))))
	return &Span{span, newWake(t.tracer)}
}

// Join returns the root of a wake that another process has started.
func (t *Tracer) Join(root api.Trace) *Span {
	return &Span{trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), spanContext(root))), newWake(t.tracer)}
}

// Start starts a child span of p.
func (p *Span) Start(s Step) *Span {
	if p == nil {
		return nil
	}
	if s.Began.IsZero() {
		s.Began = time.Now()
	}
	kind := asInternal
	if s.Name == api.SpanWake || s.Name == api.SpanFirstToken {
		kind = asClient
	}
	_, made := p.wake.tracer.Start(trace.ContextWithSpan(context.Background(), p), Clip(s.Name), trace.WithTimestamp(s.Began), kind,
		attributes(keyPart.String(string(s.Part)), keyInstance.String(Clip(string(s.Instance))), keyNote.String(Clip(s.Note))))
	p.wake.add(made)
	if !s.Ended.IsZero() {
		made.End(trace.WithTimestamp(s.Ended))
	}
	return &Span{made, p.wake}
}

// Start starts a child of the span in ctx, and returns it with a context that carries it.
func Start(ctx context.Context, s Step) (context.Context, *Span) {
	made := From(ctx).Start(s)
	return With(ctx, made), made
}

// With returns a context whose calls to other parts carry p's traceparent.
func With(ctx context.Context, p *Span) context.Context {
	if p == nil {
		return ctx
	}
	return api.WithTrace(trace.ContextWithSpan(ctx, p), p.Trace())
}

// From returns the span that ctx carries; nil: none is recorded.
func From(ctx context.Context) *Span {
	p, _ := trace.SpanFromContext(ctx).(*Span)
	return p
}

// Wake returns the wake of p, which must not be nil.
func (p *Span) Wake() *Wake { return p.wake }

// Trace returns the trace context of p; the zero value for nil.
func (p *Span) Trace() api.Trace {
	if p == nil {
		return api.Trace{}
	}
	c := p.SpanContext()
	return api.Trace{ID: c.TraceID().String(), Span: c.SpanID().String(), Unsampled: !c.IsSampled()}
}

// Done ends p now, with err if it is not nil.
func (p *Span) Done(err error) { p.DoneAt(time.Now(), err) }

// DoneAt ends p at a time.
func (p *Span) DoneAt(at time.Time, err error) {
	if p == nil {
		return
	}
	if err != nil {
		p.SetStatus(codes.Error, Clip(err.Error()))
	}
	p.End(trace.WithTimestamp(at))
}

const mostWord = 300

// Clip truncates a text from outside and makes it valid UTF-8: the exporter loses a whole batch otherwise.
func Clip(s string) string {
	if len(s) > mostWord {
		s = s[:mostWord] + "…"
	}
	return strings.ToValidUTF8(s, "")
}

func spanContext(t api.Trace) trace.SpanContext {
	cfg := trace.SpanContextConfig{Remote: true}
	cfg.TraceID, _ = trace.TraceIDFromHex(t.ID)
	cfg.SpanID, _ = trace.SpanIDFromHex(t.Span)
	if !t.Unsampled {
		cfg.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(cfg)
}

// Steps adds the steps that an instance reported of the call p, by its own clock. Late ones end with the call (a process
// must start before it has a clock), others are centered in it.
func (p *Span) Steps(id api.InstanceID, steps []api.Step, late bool) {
	if p == nil || len(steps) == 0 {
		return
	}
	began, ended := times(p.Span)
	if ended.IsZero() {
		ended = time.Now()
	}
	took := ended.Sub(began)
	within := func(d time.Duration) time.Duration { return min(max(0, d), took) }
	steps = steps[:min(len(steps), mostSpans)]
	var all time.Duration
	for _, s := range steps {
		all = max(all, within(s.After)+within(s.Took))
	}
	rest := max(0, took-all)
	if !late {
		rest /= 2
	}
	for _, s := range steps {
		after := within(within(s.After) + rest)
		ended := within(after + within(s.Took))
		p.Start(Step{Name: s.Name, Part: api.PartInstance, Instance: id, Began: began.Add(after), Ended: began.Add(ended)})
	}
}

func times(s trace.Span) (began, ended time.Time) {
	if made, is := s.(sdktrace.ReadOnlySpan); is {
		return made.StartTime(), made.EndTime()
	}
	return began, ended
}

// recordAll records every span, and exports those whose client has not opted out.
type recordAll struct{}

func (recordAll) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	r := sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: parent.TraceState()}
	if parent.IsValid() && !parent.IsSampled() {
		r.Decision = sdktrace.RecordOnly
	}
	return r
}

func (recordAll) Description() string { return "record all" }

const mostSpans = 64

// Wake records the spans below one root.
type Wake struct {
	tracer trace.Tracer

	mu     sync.Mutex // guards the fields below
	closed bool
	spans  []sdktrace.ReadOnlySpan
}

func newWake(t trace.Tracer) *Wake {
	return &Wake{tracer: t, spans: make([]sdktrace.ReadOnlySpan, 0, 8)}
}

func (w *Wake) add(made trace.Span) {
	s, recorded := made.(sdktrace.ReadOnlySpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	if recorded && !w.closed && len(w.spans) < mostSpans {
		w.spans = append(w.spans, s)
	}
}

// Close stops recording.
func (w *Wake) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// Spans returns the spans of the wake, parents first, relative to zero and clipped to their parents, or to within. A span
// that has not ended ends with its parent.
func (w *Wake) Spans(zero time.Time, within api.Span) []api.Span {
	w.mu.Lock()
	all := slices.Clone(w.spans)
	w.mu.Unlock()
	spans := make([]api.Span, 0, len(all))
	for _, made := range all {
		s := api.Span{ID: made.SpanContext().SpanID().String(), Parent: made.Parent().SpanID().String(), Name: made.Name()}
		note := ""
		for _, a := range made.Attributes() {
			switch a.Key {
			case keyPart:
				s.Part = api.Part(a.Value.AsString())
			case keyInstance:
				s.Who = api.InstanceID(a.Value.AsString())
			case keyNote:
				note = a.Value.AsString()
			}
		}
		if s.Note = made.Status().Description; s.Note != "" && note != "" {
			s.Note = note + ": " + s.Note
		}
		s.Note = cmp.Or(s.Note, note)
		outer := within
		if k := slices.IndexFunc(spans, func(p api.Span) bool { return p.ID == s.Parent }); k >= 0 && s.Name != api.SpanVictimEnd {
			outer = spans[k]
		} // the call to a victim has ended when the victim's end begins
		s.Parent = outer.ID
		end := within.End()
		if ended := made.EndTime(); !ended.IsZero() {
			end = ended.Sub(zero)
		}
		s.After = min(max(outer.After, made.StartTime().Sub(zero)), outer.End())
		s.Took = max(0, min(end, outer.End())-s.After)
		spans = append(spans, s)
	}
	return spans
}

// From OpenTelemetry's semantic conventions 1.37.
const (
	keyOperation = attribute.Key("gen_ai.operation.name")
	keyProvider  = attribute.Key("gen_ai.provider.name")
	keyModel     = attribute.Key("gen_ai.request.model")
	keyServed    = attribute.Key("gen_ai.response.model")
	keyInput     = attribute.Key("gen_ai.usage.input_tokens")
	keyCached    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyOutput    = attribute.Key("gen_ai.usage.output_tokens")
	keyResumed   = attribute.Key("rouse.resumed")
	keyMoved     = attribute.Key("rouse.moved")
	keyServer    = attribute.Key("server.address")
	keyStatus    = attribute.Key("http.response.status_code")
	keyError     = attribute.Key("error.type")
)

// Request is a finished request of a client to a model, without the prompt and the answer.
type Request struct {
	Operation string // chat, text_completion or embeddings
	Provider  string // such as vllm
	Model     string
	Served    string // the function's name
	Server    string // requested by the client
	Function  api.FunctionName
	Instance  api.InstanceID
	Status    int
	Code      string // of the error

	Input, Output api.Tokens // 0: unknown
	Cached        api.Tokens // of Input, those from the cache
	Resumed       int        // how often it continued at another instance
	Moved         int        // how often its instance gave way
	Began, Ended  time.Time
}

// Request exports a span of a request below parent.
func (t *Tracer) Request(parent api.Trace, r Request) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), spanContext(parent))
	_, span := t.tracer.Start(ctx, r.Operation+" "+Clip(r.Model), trace.WithTimestamp(r.Began), asServer,
		attributes(keyPart.String(string(api.PartActivator)), keyOperation.String(r.Operation), keyProvider.String(r.Provider), keyModel.String(Clip(r.Model)),
			keyServed.String(Clip(r.Served)), keyServer.String(Clip(r.Server)), keyFunction.String(string(r.Function)), keyInstance.String(Clip(string(r.Instance))),
			keyStatus.Int(r.Status), keyInput.Int(int(r.Input)), keyCached.Int(int(r.Cached)), keyOutput.Int(int(r.Output)), keyResumed.Int(r.Resumed), keyMoved.Int(r.Moved)))
	if r.Status >= http.StatusBadRequest || r.Code != "" {
		kind := cmp.Or(r.Code, strconv.Itoa(r.Status))
		span.SetAttributes(keyError.String(Clip(kind)))
		if r.Status >= http.StatusInternalServerError { // a client's error is not the server's
			span.SetStatus(codes.Error, Clip(kind))
		}
	}
	span.End(trace.WithTimestamp(r.Ended))
}
