package runtime

import "math"

// Signals is a server's load at one moment. A negative number means that the
// server does not say.
type Signals struct {
	// Running and Waiting are numbers of requests.
	Running, Waiting float64
	// KVUsage is the share of the KV cache that is in use, 0 to 1.
	KVUsage float64
	// BlockTokens and Blocks are the size of a KV block in tokens, and the number of blocks.
	BlockTokens, Blocks float64
	// Capacity is the number of tokens that the KV cache holds.
	Capacity float64
	// Cached is the number of tokens that the prefix cache has.
	Cached float64
	// Tokens are those that running requests have in the KV cache, QueuedTokens those of
	// requests that wait.
	Tokens, QueuedTokens float64
	// PromptTokens and GeneratedTokens were processed since the server's start.
	PromptTokens, GeneratedTokens float64
	// Times are histograms of the server's own, of all its requests since its start, by
	// their names in the protocol; what it does not have is not there.
	Times map[string]Histogram
	// RunningAdapters and WaitingAdapters are adapters with requests, nil where it does not
	// say; MaxAdapters is how many can be active at once, 0 where it does not say.
	RunningAdapters, WaitingAdapters []string
	MaxAdapters                      int
}

// Unknown are the signals of a server that says nothing.
func Unknown() Signals {
	return Signals{
		Running: -1, Waiting: -1, KVUsage: -1, BlockTokens: -1, Blocks: -1, Capacity: -1,
		Cached: -1, Tokens: -1, QueuedTokens: -1, PromptTokens: -1, GeneratedTokens: -1,
	}
}

// Names of [Signals.Times]: vLLM's, and one that it does not have. The model server
// protocol calls PerOutputToken TimePerDecodeToken.
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

// Histogram is one of Prometheus' kind.
type Histogram struct {
	Count uint64
	Sum   float64
	// Buckets count the observations up to a bound, the one without a bound left out;
	// empty: only the mean is known.
	Buckets map[float64]uint64
}

// complete fills in what follows from what the server says.
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
