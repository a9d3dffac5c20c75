package activator

import (
	"net"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// operations maps paths to OpenTelemetry's names of operations. Requests to other paths have no span.
var operations = map[string]string{
	"/v1/chat/completions": "chat", "/v1/messages": "chat", "/v1/responses": "chat", "/api/chat": "chat",
	"/v1/completions": "text_completion", "/api/generate": "text_completion",
	"/v1/embeddings": "embeddings", "/api/embed": "embeddings", "/api/embeddings": "embeddings",
}

// traceRequest exports the span of a finished request, if its client traces it or it waited for a wake.
func (c *call) traceRequest() {
	if c.a.deps.Traces == nil {
		return
	}
	r, answer, parent := &c.req, &c.reply, c.want.Woken()
	if parent.Zero() {
		parent = api.TraceFrom(r.in.Header)
	}
	operation := operations[r.in.URL.Path]
	if operation == "" || parent.Zero() || parent.Unsampled {
		return
	}
	span := waketrace.Request{Operation: operation, Model: r.Model, Instance: answer.instance, Status: answer.status, Code: answer.code, Began: r.arrived, Ended: time.Now()}
	if span.Server = r.in.Host; span.Server != "" {
		if host, _, err := net.SplitHostPort(span.Server); err == nil {
			span.Server = host
		}
	}
	if c.f != nil {
		spec := c.f.Spec()
		span.Function, span.Provider, span.Served = c.f.Name, spec.Runtime.Kind, string(spec.Model)
		switch span.Provider {
		case api.RuntimeEngine:
			span.Provider = "rouse"
		case api.RuntimeCommand, api.RuntimeHTTP:
			span.Provider = "" // unknown
		}
	}
	span.Resumed, span.Moved = c.sent.resumed, c.sent.moved
	used := c.used()
	span.Input, span.Cached, span.Output = used.input, used.cached, used.output
	c.a.tracer.Request(parent, span)
}
