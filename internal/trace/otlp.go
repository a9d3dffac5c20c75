package trace

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// The JSON form of an ExportTraceServiceRequest (opentelemetry-proto,
// collector/trace/v1): IDs are hexadecimal, 64-bit numbers are strings.

type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes"`
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String string `json:"stringValue"`
}

// Kinds of spans.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
)

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// attributes leaves out what is empty. pairs are keys and values.
func attributes(pairs ...string) []attribute {
	all := []attribute{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, attribute{pairs[i], value{pairs[i+1]}})
		}
	}
	return all
}

// whole is the span that all others of o lie in.
func whole(o api.Outline) span {
	kind := kindServer
	if o.Activator == "" {
		kind = kindInternal
	}
	return span{
		TraceID: o.Trace, SpanID: o.Root, ParentID: o.Parent, Name: "wake " + o.Function.Name(), Kind: kind,
		Start: nanos(o.Start), End: nanos(o.Start.Add(o.Total)),
		Attributes: attributes("rouse.function", string(o.Function), "rouse.instance", string(o.Instance), "rouse.path", string(o.Path),
			"rouse.by", string(o.By), "rouse.activator", o.Activator, "rouse.reason", o.Reason),
	}
}

// within is s as a span of o.
func within(o api.Outline, s api.Span) span {
	kind := kindInternal
	if s.Name == api.SpanWake || s.Name == api.SpanFirstToken {
		kind = kindClient
	}
	begin := o.Start.Add(s.After)
	return span{
		TraceID: o.Trace, SpanID: s.ID, ParentID: cmp.Or(s.Parent, o.Root), Name: s.Name, Kind: kind,
		Start: nanos(begin), End: nanos(begin.Add(s.Took)),
		Attributes: attributes("rouse.function", string(o.Function), "rouse.instance", cmp.Or(string(s.Who), string(o.Instance)),
			"rouse.path", string(o.Path), "rouse.note", s.Note),
	}
}

// services are the names that parts have as services.
var services = map[api.Part]string{
	api.PartActivator: "rouse-activator", api.PartAutoscaler: "rouse-autoscaler", api.PartInstance: "rouse-function", api.PartKubernetes: "kubernetes",
}

// payload is what is posted: a resource for each part.
func (e *Exporter) payload(groups []group) request {
	spans := map[api.Part][]span{}
	var parts []api.Part
	for _, g := range groups {
		if !slices.Contains(parts, g.part) {
			parts = append(parts, g.part)
		}
		spans[g.part] = append(spans[g.part], g.spans...)
	}
	var r request
	for _, p := range parts {
		r.ResourceSpans = append(r.ResourceSpans, resourceSpans{
			Resource:   resource{append(attributes("service.name", cmp.Or(e.cfg.service, services[p], "rouse"), "service.version", e.cfg.version), e.cfg.resource...)},
			ScopeSpans: []scopeSpans{{scope{"github.com/rouse-dev/rouse", e.cfg.version}, spans[p]}},
		})
	}
	return r
}
