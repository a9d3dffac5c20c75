package activator

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestCutInEveryShape: in every API, a stream that its instance leaves unfinished, or that takes too long, ends with
// an error in the API's format.
func TestCutInEveryShape(t *testing.T) {
	b := startBench(t, nil)
	i := b.instance(b.ollama("m", nil), "m-0001", api.Awake)
	const sse, lines = "text/event-stream", "application/x-ndjson"
	for _, tc := range []struct{ path, host, kind, first, want, end string }{
		{"/v1/chat/completions", "", sse, "data: {}\n\n", `data: {"error":{"message":"`, "}}\n\n"},
		{"/v1/completions", "", sse, "data: {}\n\n", `data: {"error":{"message":"`, "}}\n\n"},
		{"/v1/responses", "", sse, "data: {\"type\":\"x\",\"sequence_number\":4}\n\n", "event: error\ndata: {\"type\":\"error\",\"sequence_number\":5,\"code\":\"", "}}\n\n"},
		{"/v1/messages", "", sse, "event: ping\ndata: {}\n\n", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"", "}}\n\n"},
		{"/api/chat", "", lines, "{\"done\":false}\n", `{"error":"`, "\"}\n"},
		{"/api/generate", "", lines, "{\"done\":false}\n", `{"error":"`, "\"}\n"},
		{"/serving-endpoints/m/invocations", "", sse, "data: {}\n\n", `data: {"error": "`, "\"}\n\ndata: [DONE]\n\n"},
		{"/invocations", "m.default.localhost", sse, "data: {}\n\n", `data: {"error": "`, "\"}\n\ndata: [DONE]\n\n"},
	} {
		for what, end := range map[string]func(*http.Request){
			"killed":   func(*http.Request) { panic(http.ErrAbortHandler) },
			"too long": func(r *http.Request) { <-r.Context().Done() },
		} {
			t.Run(strings.ReplaceAll(tc.path[1:], "/", "-")+" "+what, func(t *testing.T) {
				i.chat = func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body) // otherwise the caller's leaving goes unnoticed
					w.Header().Set("Content-Type", tc.kind)
					_, _ = io.WriteString(w, tc.first)
					w.(http.Flusher).Flush()
					end(r)
				}
				var header []string
				if what == "too long" {
					header = []string{headerTimeout, "0.3"}
				}
				if tc.host != "" {
					header = append(header, "Host", tc.host)
				}
				resp, got := b.post(tc.path, `{"model":"m","stream":true}`, header...)
				rest, found := strings.CutPrefix(got, tc.first)
				if resp.StatusCode != 200 || !found || !strings.HasPrefix(rest, tc.want) || !strings.HasSuffix(rest, tc.end) {
					t.Errorf("got %s %q, want %q and then an error like %s…%s", resp.Status, got, tc.first, tc.want, tc.end)
				}
			})
		}
	}
}
