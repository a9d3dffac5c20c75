package waketrace

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rouse-dev/rouse/api"
)

// Attributes of OpenTelemetry's conventions for generative AI (semantic conventions 1.37), and of those for HTTP and errors.
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

// Request is a client's request to a model, which has ended. It has nothing of the prompt or of the answer.
type Request struct {
	Operation string // chat, text_completion or embeddings
	Provider  string // what runs the model, such as vllm
	Model     string // as the client calls it
	Served    string // as the function does
	Server    string // the host that the client asked
	Function  api.FunctionName
	Instance  api.InstanceID
	Status    int
	Code      string // of the error; empty: none

	Input, Output api.Tokens // 0 where they are not known
	Cached        api.Tokens // those of Input that were in the cache
	Resumed       int        // times that its stream went on at another instance
	Moved         int        // times that its instance gave way
	Began, Ended  time.Time
}

// Request exports a span of a request below that of parent.
func (t *Tracer) Request(parent api.Trace, r Request) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), spanContext(parent))
	_, span := t.tracer.Start(ctx, r.Operation+" "+Clip(r.Model), trace.WithTimestamp(r.Began), asServer,
		attributes(keyPart.String(string(api.PartActivator)), keyOperation.String(r.Operation), keyProvider.String(r.Provider), keyModel.String(Clip(r.Model)),
			keyServed.String(Clip(r.Served)), keyServer.String(Clip(r.Server)), keyFunction.String(string(r.Function)), keyInstance.String(Clip(string(r.Instance)))))
	span.SetAttributes(keyStatus.Int(r.Status))
	if r.Input > 0 {
		span.SetAttributes(keyInput.Int64(int64(r.Input)))
	}
	if r.Cached > 0 {
		span.SetAttributes(keyCached.Int64(int64(r.Cached)))
	}
	if r.Resumed > 0 {
		span.SetAttributes(keyResumed.Int(r.Resumed))
	}
	if r.Moved > 0 {
		span.SetAttributes(keyMoved.Int(r.Moved))
	}
	if r.Output > 0 {
		span.SetAttributes(keyOutput.Int64(int64(r.Output)))
	}
	if failed := r.Status >= http.StatusBadRequest || r.Code != ""; failed {
		kind := r.Code
		if kind == "" {
			kind = strconv.Itoa(r.Status)
		}
		span.SetAttributes(keyError.String(Clip(kind)))
		if r.Status >= http.StatusInternalServerError { // a client's fault is none of the server's span
			span.SetStatus(codes.Error, Clip(kind))
		}
	}
	span.End(trace.WithTimestamp(r.Ended))
}
