// Package cpu is the forward pass in plain Go: llama and qwen2 models from a GGUF file, on
// the processor, several sequences at once.
//
// Weights are used where they lie in the mapped file; nothing is repacked, so opening a
// model costs its header and the first token costs reading the weights once. The
// key-value cache is anonymous memory outside the Go heap that the system provides page by
// page when a block is first written, so a large limit costs nothing until it is used.
//
// The life of one step:
//
//  1. Forward checks the batch and cuts it into parts of at most maxStep tokens, which
//     bounds the working memory. Tokens of one sequence keep their order.
//  2. Per part: embedding rows are decoded; then for each layer: norm, Q K V, rotation,
//     keys and values to the cache, attention per token and head, output projection,
//     norm, gate and up, down.
//  3. Tokens whose logits were asked for are gathered, normed and multiplied with the
//     output matrix.
//
// Each stage is cut into chunks that the goroutines of a team take from a counter
// (team.go). A chunk computes whole outputs, each a fixed-order sum over its own inputs:
// logits have the same bits whatever the batch, the chunking and the number of threads.
// Forward checks its context between layers.
//
// Numerics: activations are quantised to 8 bits per block of 32 before they meet Q8_0 weights, as
// in ggml; everything else, and the cache, is F32.
package cpu
