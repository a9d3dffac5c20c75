// Package cpu implements the forward pass on the CPU: every architecture of package model, several sequences at once,
// on package kernel's packed matrices.
//
// A model's matrices are packed once, into a file that all processes map (tilecache.go). A small model, or one whose
// file cannot be written, is packed into memory of the process. The KV cache is anonymous memory outside the Go heap,
// as IEEE halves. The OS provides its pages when a block is first written, so a large limit costs nothing until it is
// used.
//
// The life of one step:
//
//  1. Forward checks the batch, copies the cache blocks of sequences that diverge, and cuts the tokens into parts of at
//     most maxStep, which bounds the working memory. Tokens of one sequence keep their order. In an encoder a sequence is
//     never cut.
//  2. Per part, embeddings are looked up. Then for each layer (step.go): norm (prepare.go), Q K V
//     (product.go), rotation, keys and values to the cache, attention (attention.go), output
//     projection, norm, and the feed-forward layer or the experts that the router chose (experts.go). In place of
//     rotation and attention a layer may have a delta net, which changes the sequences' states (delta.go).
//  3. Tokens whose logits or hidden states are wanted are normed; the logits of all are one product
//     with the output matrix.
//
// Each stage is cut into chunks that the goroutines of a team take from a counter (team.go). A chunk computes whole
// outputs in a fixed order from its own inputs. So results are bit-exact for any batch, chunking, number of threads,
// blocks, and number of ranks (share.go) that compute the model together. Ranks divide rows and heads, write the
// results of four stages per layer to shared memory, and wait for one another there (exchange.go).
//
// External failures: a mapped file is truncated, or its disk fails. Sizes are checked on wake; a page that cannot be
// read during a step ends the step with an error.
//
// Numerics: activations are rounded to 8 bits per block of 32 before products with quantised weights, as in ggml; keys
// and values are halves; everything else is F32.
package cpu
