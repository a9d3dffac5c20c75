package runtime

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/promtext"
)

// Startup records the steps of a start or wake, one after another. It is safe for many goroutines.
type Startup struct {
	began time.Time

	mu    sync.Mutex // guards steps
	steps []api.Step // Took is set by the next
}

// NewStartup returns a Startup that begins now.
func NewStartup() *Startup { return &Startup{began: time.Now()} }

const mostSteps = 24

// Step ends the step under way and begins another, unless it has that name. It does nothing on a nil Startup.
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

// shortest: a restore at the end that took less did nothing, and counts as part of the step before.
const shortest = 50 * time.Microsecond

// End returns all steps. No Step may follow.
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

// With returns a context in which calls to a runtime record their steps.
func (s *Startup) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, startupKey{}, s)
}

func startupOf(ctx context.Context) *Startup {
	s, _ := ctx.Value(startupKey{}).(*Startup)
	return s
}

// shown has the canary answered before other requests: serves runs while this goroutine waits for the answer.
func shown(ctx context.Context, e api.Endpoint, show func(context.Context, api.Endpoint, api.ModelName) (Answer, error), serves func()) (Answer, error) {
	if serves == nil {
		return show(ctx, e, "")
	}
	said := make(chan struct{})
	go func() {
		serves()
		close(said)
	}()
	answer, err := show(ctx, e, "")
	<-said
	return answer, err
}

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

// Signals is a server's load at one moment. Negative numbers are unknown.
type Signals struct {
	Running, Waiting float64
	// KVUsage is from 0 to 1.
	KVUsage float64
	// BlockTokens is the size of one block.
	BlockTokens, Blocks float64
	// Capacity is the KV cache's, in tokens.
	Capacity float64
	// Cached counts tokens in the prefix cache.
	Cached float64
	// Tokens are the running requests' in the KV cache, QueuedTokens the waiting ones'.
	Tokens, QueuedTokens float64
	// PromptTokens and GeneratedTokens are since the server's start.
	PromptTokens, GeneratedTokens float64
	// Times are since the server's start, by the names below; unknown ones are missing.
	Times map[string]Histogram
	// RunningAdapters and WaitingAdapters; nil: unknown. MaxAdapters can be active at once; 0: unknown.
	RunningAdapters, WaitingAdapters []string
	MaxAdapters                      int
}

// Unknown returns the signals of a server that reports nothing.
func Unknown() Signals {
	return Signals{
		Running: -1, Waiting: -1, KVUsage: -1, BlockTokens: -1, Blocks: -1, Capacity: -1,
		Cached: -1, Tokens: -1, QueuedTokens: -1, PromptTokens: -1, GeneratedTokens: -1,
	}
}

// Names of [Signals.Times]: vLLM's, and PerPrefillToken. The model server protocol calls PerOutputToken TimePerDecodeToken.
const (
	FirstToken      = "vllm:time_to_first_token_seconds"
	PerOutputToken  = "vllm:time_per_output_token_seconds"
	InterToken      = "vllm:inter_token_latency_seconds"
	PerRequestToken = "vllm:request_time_per_output_token_seconds"
	PerPrefillToken = "rouse_time_per_prefill_token_seconds"
	WholeRequest    = "vllm:e2e_request_latency_seconds"
	QueueTime       = "vllm:request_queue_time_seconds"
	InferenceTime   = "vllm:request_inference_time_seconds"
	PrefillTime     = "vllm:request_prefill_time_seconds"
	DecodeTime      = "vllm:request_decode_time_seconds"
)

// Histogram is a Prometheus histogram.
type Histogram struct {
	Count uint64
	Sum   float64
	// Buckets count the observations up to each bound, without the infinite one; empty: only the mean is known.
	Buckets map[float64]uint64
}

func (s *Signals) complete() {
	if s.Capacity < 0 && s.BlockTokens > 0 && s.Blocks > 0 {
		s.Capacity = s.BlockTokens * s.Blocks
	}
	if s.Tokens < 0 && s.KVUsage >= 0 && s.Capacity > 0 {
		s.Tokens = math.Round(s.KVUsage * s.Capacity)
	}
	if s.KVUsage < 0 && s.Tokens >= 0 && s.Capacity > 0 {
		s.KVUsage = s.Tokens / s.Capacity
	}
	if s.QueuedTokens < 0 && s.Waiting == 0 {
		s.QueuedTokens = 0
	}
}

// readTimes derives a missing time per prompt token, as the mean of 1. the prefills, or 2. the times to the first token.
func (n metricNames) readTimes(found promtext.Families, s *Signals) {
	for name, theirs := range n.times {
		h, ok := histogram(first(found, theirs))
		if !ok {
			continue
		}
		if s.Times == nil {
			s.Times = map[string]Histogram{}
		}
		s.Times[name] = h
	}
	if _, has := s.Times[PerPrefillToken]; has {
		return
	}
	prompts, any := histogram(found[n.prompts])
	if prefills, has := s.Times[PrefillTime]; has && any { // 1.
		s.Times[PerPrefillToken] = Histogram{Count: tokensIn(prompts.Sum), Sum: prefills.Sum}
	} else if firsts, has := s.Times[FirstToken]; has && s.PromptTokens >= 0 { // 2.
		s.Times[PerPrefillToken] = Histogram{Count: tokensIn(s.PromptTokens), Sum: firsts.Sum}
	}
}

// tokensIn returns 0 for an implausible number.
func tokensIn(v float64) uint64 {
	if v > 0 && v < 1e15 {
		return uint64(v)
	}
	return 0
}

// histogram sums those of a server's engines, and rejects invalid ones, such as falling buckets.
func histogram(f *dto.MetricFamily) (sum Histogram, ok bool) {
	if f == nil {
		return sum, false
	}
	for _, m := range f.Metric {
		h := m.GetHistogram()
		if h == nil || !(h.GetSampleSum() >= 0 && h.GetSampleSum() < 1e15) { // NaN too
			return Histogram{}, false
		}
		sum.Count += h.GetSampleCount()
		sum.Sum += h.GetSampleSum()
		for _, b := range h.GetBucket() {
			if at := b.GetUpperBound(); !math.IsInf(at, 1) && !math.IsNaN(at) {
				if sum.Buckets == nil {
					sum.Buckets = map[float64]uint64{}
				}
				sum.Buckets[at] += b.GetCumulativeCount()
			}
		}
	}
	below := uint64(0)
	for _, at := range slices.Sorted(maps.Keys(sum.Buckets)) {
		if sum.Buckets[at] < below || sum.Buckets[at] > sum.Count {
			return Histogram{}, false
		}
		below = sum.Buckets[at]
	}
	return sum, true
}
