package activator

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestLackingAPI: a request that the runtime would answer with 404 wakes nothing and counts as no demand.
func TestLackingAPI(t *testing.T) {
	for _, tc := range []struct {
		kind, path string
		handler    bool
		status     int
		want       string
	}{
		{api.RuntimeOllama, "/v1/rerank", false, 404, "runs on ollama, which has no /v1/rerank: only engine, vllm, sglang, llamacpp, or a command, may have it"},
		{api.RuntimeEngine, "/classify", false, 404, "which has no /classify"},
		{api.RuntimeOllama, "/tokenize", false, 404, "which has no /tokenize"},
		{api.RuntimeLlamaCpp, "/score", false, 404, "which has no /score"},
		{api.RuntimeVLLM, "/api/chat", false, 501, "instead of /api/chat use POST /v1/chat/completions"},
		{api.RuntimeSGLang, "/api/generate", false, 501, "instead of /api/generate use"},
		{api.RuntimeLlamaCpp, "/api/chat", false, 501, "instead of /api/chat use POST /v1/chat/completions"},
		{api.RuntimeEngine, "/api/chat", false, 200, ""},
		{api.RuntimeEngine, "/api/embed", false, 200, ""},
		{api.RuntimeEngine, "/api/show", false, 200, ""},
		{api.RuntimeVLLM, "/v1/rerank", false, 200, ""},
		{api.RuntimeEngine, "/v1/embeddings", false, 200, ""},
		{api.RuntimeEngine, "/v1/rerank", true, 200, ""},
		{api.RuntimeEngine, "/v1/responses", false, 200, ""}, // translated by the function
		{api.RuntimeEngine, "/v1/messages", false, 200, ""},
		{api.RuntimeCommand, "/v1/rerank", false, 200, ""},
		{api.RuntimeRayServe, "/v1/score", false, 200, ""},
	} {
		t.Run(tc.kind+strings.ReplaceAll(tc.path, "/", "-"), func(t *testing.T) {
			b := startBench(t, nil)
			i := b.instance(b.function("m", func(f *api.Function) {
				f.Runtime.Kind = tc.kind
				if tc.handler {
					f.Handler = []string{"program"}
				}
			}), "m-0001", api.Asleep)
			b.grant(i, 1)
			for _, host := range []string{"", "m.default.localhost"} { // the front door, and the function's own
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.ts.URL+tc.path, strings.NewReader(`{"model":"m"}`))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
					t.Errorf("host %q: got %s %s, want %d and %q", host, resp.Status, body, tc.status, tc.want)
				}
			}
			stats, _ := b.a.Stats("default/m")
			if woken := i.wakes.Load() > 0; woken != (tc.status == 200) || (tc.status != 200 && !stats.LastRequest.IsZero()) {
				t.Errorf("%d wakes, last request %v", i.wakes.Load(), stats.LastRequest)
			}
		})
	}
}
