package activator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestErrorsOfMessages: errors at Anthropic's paths have Anthropic's format, whatever their origin.
func TestErrorsOfMessages(t *testing.T) {
	b := startBench(t, nil)
	for path, body := range map[string]string{
		"/v1/messages":              `{"model":"nobody"}`,
		"/v1/messages/count_tokens": `{"model":`,
		"/v1/messages/batches":      `{}`,
	} {
		if resp, got := b.post(path, body); resp.StatusCode/100 != 4 || !strings.HasPrefix(got, `{"type":"error","error":{"type":"`) {
			t.Errorf("%s: got %s %s", path, resp.Status, got)
		}
	}
}

// TestPathsThatNameAModel: every path whose body names a model is served at the front door, as at a function's own
// host.
func TestPathsThatNameAModel(t *testing.T) {
	b := startBench(t, nil)
	for _, path := range []string{
		"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
		"/v1/chat/completions/batch", "/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate", "/v2/embed",
		"/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/pooling", "/classify", "/tokenize", "/detokenize",
	} {
		if resp, got := b.post(path, `{"model":"nobody"}`); resp.StatusCode != 404 || !strings.Contains(got, "model_not_found") && !strings.Contains(got, "not_found_error") {
			t.Errorf("%s: got %s %s", path, resp.Status, got)
		}
	}
}

// TestReasonOfAFailedStart: who may administer reads why a start failed, in answers of every format and in a stream
// that has begun with comments; nobody else does.
func TestReasonOfAFailedStart(t *testing.T) {
	const why, known = "/srv/models/m.gguf is truncated", "it does not start"
	b := startBench(t, func(c *Config) { c.CommentAfter = time.Nanosecond }, func(d *Deps) {
		d.LastError = func(r *http.Request, f api.FunctionName) string {
			if f != "default/m" || r.Header.Get("X-Operator") == "" {
				return ""
			}
			return why
		}
	})
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	for _, stream := range []string{"false", "true"} {
		for _, path := range []string{chatPath, "/v1/messages", "/api/chat"} {
			for _, operator := range []string{"", "yes"} {
				b.a.ObserveInstance(i.set(api.Awake)) // what failed before does not count any more
				b.a.ObserveInstance(i.set(api.Asleep))
				before, failed := b.comments.Load(), make(chan struct{})
				go func() {
					defer close(failed)
					b.eventually("a request that waits", func() bool {
						s, _ := b.a.Stats(name)
						return s.Waiting == 1 && (path != chatPath || stream == "false" || b.comments.Load() > before)
					})
					b.a.Fail(name, api.Errorf(503, api.CodeStartFailed, known))
				}()
				resp, got := b.post(path, `{"model":"m","messages":[],"max_tokens":1,"stream":`+stream+`}`, "X-Operator", operator)
				<-failed
				if tells := strings.Contains(got, why); tells != (operator != "") || tells == strings.Contains(got, known) {
					t.Errorf("%s, stream %s, administrator %q: %s %s", path, stream, operator, resp.Status, got)
				}
			}
		}
	}
}
