package main

import (
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// layouts are those of public models, smaller in every measure, and just too large to be packed in memory (32 MB).
var layouts = map[string]infertest.Spec{
	// Qwen3-0.6B-Q4_K_M: most matrices Q4_K and some Q6_K, the output is the embedding, heads wider than Dim/Heads.
	"qwen3": {
		Arch: "qwen3", Mix: []gguf.Type{gguf.Q4_K, gguf.Q4_K, gguf.Q4_K, gguf.Q6_K}, Dim: 768, Layers: 8, Heads: 12, KVHeads: 4, HeadDim: 128,
		FFN: 2048, Vocab: 2000, Context: 2048, RopeBase: 1e6, Seed: 1,
	},
	// Llama-3.2-1B-Q8_0: a tensor with factors for the rope's frequencies, four queries to a key.
	"llama3": {
		Arch: "llama", Type: gguf.Q8_0, Dim: 512, Layers: 9, Heads: 8, KVHeads: 2, FFN: 2048, Vocab: 4000, Context: 2048,
		RopeBase: 500000, RopeFactors: true, Pre: "llama-bpe", Seed: 2,
	},
}
