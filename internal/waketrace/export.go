package waketrace

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rouse-dev/rouse/api"
)

const (
	together  = 200 * time.Millisecond
	farewell  = 2 * time.Second
	saidAgain = time.Minute
)

// Exporter exports the spans of tracers; nil exports nothing. Spans beyond its queue are dropped.
type Exporter struct{ batches sdktrace.SpanProcessor }

// FromEnvironment returns an exporter configured by OpenTelemetry's variables; nil without an endpoint. Variables for traces
// override those for all signals.
//
//	OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT   the endpoint
//	OTEL_EXPORTER_OTLP_TRACES_HEADERS, OTEL_EXPORTER_OTLP_HEADERS     credentials
//	OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT     in milliseconds
//	OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL   grpc is rejected
//	OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES                       the service's name and attributes
//	OTEL_TRACES_EXPORTER=none, OTEL_SDK_DISABLED=true                 no traces
//
// The exporter runs until [Exporter.Run] ends it.
func FromEnvironment(env func(string) string, version string, log *slog.Logger) (*Exporter, error) {
	return fromEnvironment(env, version, log, http.DefaultTransport.(*http.Transport).Clone())
}

func fromEnvironment(env func(string) string, version string, log *slog.Logger, transport http.RoundTripper) (*Exporter, error) {
	of := func(name string) string {
		return cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_"+name), env("OTEL_EXPORTER_OTLP_"+name))
	}
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" || of("ENDPOINT") == "" {
		return nil, nil
	}
	if p := of("PROTOCOL"); p == "grpc" {
		return nil, fmt.Errorf("traces: the protocol %s is not spoken: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://HOST:4318/v1/traces", p)
	}
	at, err := endpoint(env)
	if err != nil {
		return nil, err
	}
	timeout := 10 * time.Second
	if text := of("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 || ms > mostTimeout {
			return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_TIMEOUT is %q: want milliseconds, such as 10000, and at most %d", text, mostTimeout)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	headers, err := pairs("OTEL_EXPORTER_OTLP_HEADERS", of("HEADERS"))
	if err != nil {
		return nil, err
	}
	about, err := pairs("OTEL_RESOURCE_ATTRIBUTES", env("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, err
	}
	if password, has := at.User.Password(); has && headers["Authorization"] == "" {
		headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(at.User.Username()+":"+password))
	}
	at.User = nil
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	out, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(at.String()), otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: stay, Timeout: timeout}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: 250 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: 3 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	parts := &byPart{SpanExporter: out, resources: make(map[api.Part]*resource.Resource), to: at.String(), log: log}
	for part, service := range services {
		named := map[string]string{"service.name": service, "service.version": version}
		maps.Copy(named, about)
		if name := env("OTEL_SERVICE_NAME"); name != "" {
			named["service.name"] = name
		}
		parts.resources[part] = described(named)
	}
	return ExportTo(sdktrace.NewBatchSpanProcessor(parts, sdktrace.WithBatchTimeout(together))), nil
}

// ExportTo returns an exporter to another processor.
func ExportTo(p sdktrace.SpanProcessor) *Exporter { return &Exporter{p} }

var services = map[api.Part]string{
	api.PartActivator: "rouse-activator", api.PartAutoscaler: "rouse-autoscaler", api.PartInstance: "rouse-function", api.PartKubernetes: "kubernetes",
}

func described(by map[string]string) *resource.Resource {
	var all []attribute.KeyValue
	for k, v := range by {
		if v != "" {
			all = append(all, attribute.String(k, v))
		}
	}
	return resource.NewSchemaless(all...)
}

const mostTimeout = 3_600_000

func endpoint(env func(string) string) (*url.URL, error) {
	name, text := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	base := text == ""
	if base {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", env("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		if strings.Contains(text, "@") {
			text = "…" // it may contain a password
		}
		return nil, fmt.Errorf("traces: %s is %q: want a URL such as http://collector:4318", name, text)
	}
	if base {
		return u.JoinPath("v1", "traces"), nil
	}
	return u, nil
}

// pairs parses KEY=VALUE,KEY=VALUE, percent-encoded (W3C Baggage).
func pairs(name, text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, found := strings.Cut(pair, "=")
		decoded, err := url.PathUnescape(strings.TrimSpace(v))
		if !found || err != nil || strings.TrimSpace(k) == "" || strings.ContainsAny(decoded, "\r\n\x00") {
			return nil, fmt.Errorf("traces: %s: want KEY=VALUE pairs separated by commas, with %%XX for what is neither letter nor digit", name) // the value may be a secret
		}
		all[strings.TrimSpace(k)] = decoded
	}
	return all, nil
}

// Run blocks until ctx ends, then exports the remaining spans and ends the exporter. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	<-ctx.Done()
	if e == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = e.batches.Shutdown(last) // the losses were logged
	return nil
}

// byPart exports each span under its part's service. One goroutine calls it.
type byPart struct {
	sdktrace.SpanExporter
	resources map[api.Part]*resource.Resource
	to        string
	log       *slog.Logger
	lost      int
	said      time.Time
}

type ofPart struct {
	sdktrace.ReadOnlySpan
	resource *resource.Resource
}

func (s ofPart) Resource() *resource.Resource { return s.resource }

// ExportSpans logs lost spans, at most once a minute.
func (e *byPart) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	all := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		all[i] = ofPart{s, e.resources[partOf(s)]}
	}
	err := e.SpanExporter.ExportSpans(ctx, all)
	if err == nil {
		return nil
	}
	e.lost += len(spans)
	if now := time.Now(); now.Sub(e.said) >= saidAgain {
		e.said = now
		e.log.Warn("traces can't be exported", "to", e.to, "error", Clip(err.Error()), "spans lost", e.lost,
			"do", "see whether an OTLP receiver listens there over HTTP (port 4318 as a rule), or take OTEL_EXPORTER_OTLP_ENDPOINT out of the environment")
	}
	return nil
}

func partOf(s sdktrace.ReadOnlySpan) (part api.Part) {
	for _, a := range s.Attributes() {
		if a.Key == keyPart {
			part = api.Part(a.Value.AsString())
		}
	}
	return part
}
