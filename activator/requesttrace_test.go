package activator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// TestSpansOfRequests: a request whose client traces it, and one that waited for a wake, has a span with
// OpenTelemetry's attributes; others have none, and none contains text of the prompt.
func TestSpansOfRequests(t *testing.T) {
	exported := tracetest.NewSpanRecorder()
	b := startBench(t, nil, func(d *Deps) { d.Traces = waketrace.ExportTo(exported) })
	name := b.function("m", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM })
	i := b.instance(name, "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"a secret"}}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}`))
	}
	const secret = `{"model":"m","messages":[{"role":"user","content":"a secret"}]}`
	requests := func() (got []string) {
		b.eventually("spans", func() bool { return len(exported.Ended()) > 0 })
		for _, s := range exported.Ended() {
			if strings.HasPrefix(s.Name(), "wake") || s.SpanKind().String() != "server" {
				continue
			}
			all := map[string]string{}
			for _, a := range s.Attributes() {
				all[string(a.Key)] = a.Value.String()
			}
			if strings.Contains(fmt.Sprint(all), "secret") {
				t.Errorf("the prompt is in %v", all)
			}
			got = append(got, fmt.Sprint(s.Name(), " ", s.Parent().TraceID().String()[:4], " ", all["gen_ai.provider.name"], " ", all["gen_ai.request.model"], " ", all["rouse.instance"], " ",
				all["http.response.status_code"], " ", all["gen_ai.usage.input_tokens"], " ", all["gen_ai.usage.cache_read.input_tokens"], " ", all["gen_ai.usage.output_tokens"], " ", all["error.type"]))
		}
		exported.Reset()
		return got
	}
	for _, path := range []string{chatPath, "/v1/models/m"} { // not traced
		b.post(path, secret)
	}
	if n := len(exported.Ended()); n > 0 {
		t.Errorf("%d spans of requests that nobody traces", n)
	}
	b.post(chatPath, secret, api.HeaderTrace, theClient)
	b.post(chatPath, secret, api.HeaderTrace, strings.TrimSuffix(theClient, "01")+"00") // the client does not sample it
	if diff := cmp.Diff([]string{"chat m 4bf9 vllm m m-0001 200 7 4 5 "}, requests()); diff != "" {
		t.Errorf("of an awake function (-want +got):\n%s", diff)
	}
	b.post(chatPath, `{"model":"x","messages":[]}`, api.HeaderTrace, theClient)
	if diff := cmp.Diff([]string{"chat x 4bf9  x  404    model_not_found"}, requests()); diff != "" {
		t.Errorf("of no function (-want +got):\n%s", diff)
	}
	b.grant(b.instance(b.function("w", nil), "w-0001", api.Asleep), 1)
	b.post(chatPath, `{"model":"w","messages":[]}`)
	b.eventually("the wake's spans", func() bool {
		wake, request := "", ""
		for _, s := range exported.Ended() {
			switch s.Name() {
			case "wake w":
				wake = s.SpanContext().SpanID().String()
			case "chat w":
				request = s.Parent().SpanID().String()
			}
		}
		return wake != "" && wake == request
	})
}
