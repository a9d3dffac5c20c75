package runtime

import (
	"context"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

type stepKey struct{}

// WithSteps returns a context in which calls to a runtime say what they begin with: a
// word of [api.Step]. note may be called from any goroutine, and with one word again.
func WithSteps(ctx context.Context, note func(step string)) context.Context {
	return context.WithValue(ctx, stepKey{}, note)
}

// Step says that a step begins, where somebody wants to know.
func Step(ctx context.Context, step string) {
	if note, found := ctx.Value(stepKey{}).(func(string)); found {
		note(step)
	}
}

type wokenKey struct{}

// WithWoken returns a context in which a wake says that the server takes requests again, by a call of f, before
// it has shown what it answers. Wakes for which there is no such moment say nothing.
func WithWoken(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, wokenKey{}, f)
}

// Woken says so, where somebody wants to know.
func Woken(ctx context.Context) {
	if f, found := ctx.Value(wokenKey{}).(func()); found {
		f()
	}
}

// shown has a server that takes requests again show what it answers. Others' requests come after
// the one that is made for that: it is said that the server takes them when this goroutine waits for
// the answer, or at the latest when it has it.
func shown(ctx context.Context, e api.Endpoint, show func(context.Context, api.Endpoint) (Answer, error)) (Answer, error) {
	said := make(chan struct{}) // closed when it is said
	go func() {
		Woken(ctx)
		close(said)
	}()
	answer, err := show(ctx, e)
	<-said
	return answer, err
}

// stepOf is the step that a call to a path of a runtime is part of; empty: it begins none.
func stepOf(path string) string {
	path, query, _ := strings.Cut(path, "?")
	switch {
	case query == "tags=kv_cache", path == "/reset_prefix_cache":
		return api.StepCache
	case path == "/wake_up", path == "/resume_memory_occupation":
		return api.StepWaking
	case path == "/collective_rpc", path == "/update_weights_from_disk":
		return api.StepWeights
	case path == "/v1/completions", path == "/v1/chat/completions", path == "/v1/embeddings", path == "/v1/rerank":
		return api.StepProbing
	}
	return ""
}
