package knative

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// TestCanary has vLLM wake with weights that are none, each time: no client sees
// what they say, however many wait, and the autoscaler says what happened.
func TestCanary(t *testing.T) {
	parallel(t)
	f := create(t, "canary", simulator, []string{"rouse.dev/model=sim/llama-8b", "rouse.dev/runtime=vllm", "rouse.dev/memory=64Mi", "rouse.dev/sleep-after=0"},
		"--env", "VLLMSIM_FLAGS=--time-scale 0 --fault garbage-wake")
	said := content(f.ask("hello there").body)
	if said == "" {
		t.Fatal("the first answer has no content")
	}
	for range 3 {
		if out, err := f.c.Kn(t.Context(), "rouse", "sleep", f.name); err != nil {
			t.Fatalf("kn rouse sleep: %v: %s", err, out)
		}
		answers := make(chan string, 8)
		for range cap(answers) {
			go func(ctx context.Context) {
				a, err := call(ctx, f.c, f.host(), "/v1/chat/completions", chat(f.name, "hello there"))
				if err != nil || a.status != http.StatusOK {
					a.body = "no answer"
				}
				answers <- content(a.body)
			}(t.Context())
		}
		for range cap(answers) {
			if got := <-answers; got != said {
				t.Errorf("after a wake it says %q, before %q", got, said)
			}
		}
	}
	if why, err := f.c.Kn(t.Context(), "rouse", "why", f.name); err != nil || strings.Count(why, "did not answer as it did before it slept") != 3 {
		t.Errorf("kn rouse why (%v): want three reloads:\n%s", err, why)
	}
}

// content is the text of a chat's answer.
func content(body string) string {
	_, text, _ := strings.Cut(body, `"content":"`)
	text, _, _ = strings.Cut(text, `"`)
	return text
}
