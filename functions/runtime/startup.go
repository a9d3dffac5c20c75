package runtime

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Startup records the steps of a start or wake: each ends where the next begins. Its methods are safe for many goroutines. Step does
// nothing on a nil Startup.
type Startup struct {
	began time.Time

	mu    sync.Mutex // guards steps
	steps []api.Step // Took is filled in by the next
}

// NewStartup returns a Startup that begins now.
func NewStartup() *Startup { return &Startup{began: time.Now()} }

// mostSteps bounds the steps of a long series of attempts.
const mostSteps = 24

// Step begins a step, and ends the one under way. A step that is under way is not begun again.
func (s *Startup) Step(step string) {
	if s == nil {
		return
	}
	after := time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.steps); n > 0 {
		if s.steps[n-1].Name == step || n == mostSteps {
			return
		}
		s.steps[n-1].Took = after - s.steps[n-1].After
	}
	s.steps = append(s.steps, api.Step{Name: step, After: after})
}

// shortest is the least duration of a step that is reported although it may have done nothing.
const shortest = 50 * time.Microsecond

// End ends the last step and returns all. Nothing is recorded after it.
func (s *Startup) End() []api.Step {
	took := time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.steps)
	if n > 0 {
		last := &s.steps[n-1]
		last.Took = took - last.After
		if n > 1 && last.Name == api.StepRestoring && last.Took < shortest {
			s.steps[n-2].Took += last.Took
			s.steps = s.steps[:n-1]
		}
	}
	return s.steps
}

type startupKey struct{}

// With returns a context in which calls to a runtime record the steps that they begin.
func (s *Startup) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, startupKey{}, s)
}

func startupOf(ctx context.Context) *Startup {
	s, _ := ctx.Value(startupKey{}).(*Startup)
	return s
}

// shown makes a server that accepts requests again answer the canary. Other requests come after the canary: serves is called when this
// goroutine waits for the answer, or at the latest when it has it.
func shown(ctx context.Context, e api.Endpoint, show func(context.Context, api.Endpoint, api.ModelName) (Answer, error), serves func()) (Answer, error) {
	if serves == nil {
		return show(ctx, e, "")
	}
	said := make(chan struct{}) // closed when it has returned
	go func() {
		serves()
		close(said)
	}()
	answer, err := show(ctx, e, "")
	<-said
	return answer, err
}

// stepOf returns the step that a call to a runtime's path belongs to; empty: it begins none.
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
