// Package cpu is the forward pass on the processor: every architecture that package model
// knows, several sequences at once, on package kernel's packed matrices.
//
// A model's matrices are packed once, into a file that all processes map (tilecache.go), or, for
// a small model and where no file can be written, into memory of the process. The key-value cache
// is anonymous memory outside the Go heap, as IEEE halves, which the system provides page by page
// when a block is first written: a large limit costs nothing until it is used.
//
// The life of one step:
//
//  1. Forward checks the batch, copies the cache blocks of sequences that diverge, and cuts the tokens into parts of at
//     most maxStep, which bounds the working memory. Tokens of one sequence keep their order.
//  2. Per part: embeddings are looked up; then for each layer (step.go): norm (prepare.go), Q K V
//     (product.go), rotation, keys and values to the cache, attention (attention.go), output
//     projection, norm, and the feed-forward layer or the experts that the router chose (experts.go).
//  3. Tokens whose logits or hidden states are wanted are normed; the logits of all are one product
//     with the output matrix.
//
// Each stage is cut into chunks that the goroutines of a team take from a counter (team.go). A
// chunk computes whole outputs, each a fixed-order computation from its own inputs: results have
// the same bits whatever the batch, the chunking, the number of threads, the blocks, and the
// number of ranks (share.go) that compute the model together. Ranks divide rows and heads, leave
// the results of four stages a layer in memory that they share, and wait for one another there
// (exchange.go).
//
// External failures: a mapped file is truncated, or its disk fails. Sizes are checked at
// wake; a page that cannot be read in the middle of a step ends the step with an error.
//
// Numerics: activations are rounded to 8 bits per block of 32 before they meet quantised
// weights, as in ggml; keys and values are kept as halves; everything else is F32.
package cpu
