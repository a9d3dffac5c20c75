package waketrace

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rouse-dev/rouse/api"
)

// Attributes of OpenTelemetry's semantic conventions 1.37 for generative AI, HTTP and errors.
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
	Provider  string // the server of the model, such as vllm
	Model     string // the name used by the client
	Served    string // the name used by the function
	Server    string // the host requested by the client
	Function  api.FunctionName
	Instance  api.InstanceID
	Status    int
	Code      string // the error's code; empty: none

	Input, Output api.Tokens // 0: unknown
	Cached        api.Tokens // the part of Input that came from the cache
	Resumed       int        // how often its stream continued at another instance
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
		if r.Status >= http.StatusInternalServerError { // the server's span has no error status for a client's error
			span.SetStatus(codes.Error, Clip(kind))
		}
	}
	span.End(trace.WithTimestamp(r.Ended))
}
