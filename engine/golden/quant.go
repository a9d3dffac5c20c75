package main

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/ollama/ollama/ml/backend/ggml"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// decoded is ggml's result for infertest.Blocks(Type, 64·256).
type decoded struct {
	Type  gguf.Type `json:"type"`
	Name  string    `json:"name"`
	Hash  string    `json:"hash"`  // FNV-1a over the little-endian bits of all values
	First []float32 `json:"first"` // the first values, for debugging
}

// makeQuant decodes random blocks of every type.
func makeQuant(out string) error {
	var cases []any
	for t := range gguf.Type(64) {
		if !t.Decodable() || t == gguf.F32 || t == gguf.IQ4_NL || t == gguf.IQ4_XS { // Ollama's binding does not decode the last two
			continue
		}
		const n = 64 * gguf.KBlock
		x := ggml.ConvertToF32(infertest.Blocks(t, n), uint32(t), n)
		h := fnv.New64a()
		for _, v := range x {
			b := math.Float32bits(v)
			_, _ = h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
		}
		cases = append(cases, decoded{t, t.String(), fmt.Sprintf("%x", h.Sum64()), x[:8]})
	}
	return writeJSON(out, map[string]any{}, map[string][]any{"cases": cases})
}
