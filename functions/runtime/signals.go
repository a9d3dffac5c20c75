package runtime

import "math"

// Signals is a server's load at one moment. A negative number means that it is unknown.
type Signals struct {
	// Running and Waiting are numbers of requests.
	Running, Waiting float64
	// KVUsage is the used share of the KV cache, 0 to 1.
	KVUsage float64
	// BlockTokens and Blocks are the size of a KV block in tokens, and the number of blocks.
	BlockTokens, Blocks float64
	// Capacity is the number of tokens that the KV cache holds.
	Capacity float64
	// Cached is the number of tokens in the prefix cache.
	Cached float64
	// Tokens is the number of running requests' tokens in the KV cache, QueuedTokens of waiting requests' tokens.
	Tokens, QueuedTokens float64
	// PromptTokens and GeneratedTokens are the numbers processed since the server's start.
	PromptTokens, GeneratedTokens float64
	// Times are the server's own histograms over all requests since its start, by the protocol's names; unknown ones are missing.
	Times map[string]Histogram
	// RunningAdapters and WaitingAdapters are adapters with requests, nil if unknown; MaxAdapters is how many can be active at once, 0
	// if unknown.
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

// Names of [Signals.Times]: vLLM's, and one that it does not have. The model server protocol calls PerOutputToken TimePerDecodeToken.
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
	// Buckets count the observations up to a bound, without the infinite one; empty: only the mean is known.
	Buckets map[float64]uint64
}

// complete derives missing values from the reported ones.
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
