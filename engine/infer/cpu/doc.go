// Package cpu implements the forward pass on the CPU, for every architecture of package model, on package kernel's
// packed matrices. These are in a file that all processes map (tilecache.go), or else in memory of the process.
//
//  1. Forward checks the batch, copies cache blocks, and cuts the tokens into parts of at most maxStep. In an
//     encoder a sequence is never cut.
//  2. Per part and layer (step.go): norm (prepare.go), Q K V (product.go), rotation, keys and values to the cache,
//     attention (attention.go) or a delta net (delta.go), output projection, norm, and the feed-forward layer or
//     experts (experts.go).
//  3. Tokens whose logits or hidden states are wanted are normed; the logits of all are one product with the output
//     matrix.
//
// Each stage is cut into chunks that the goroutines of a team take from a counter (team.go). A chunk computes whole
// outputs in a fixed order from its own inputs. So results are bit-exact for any batch, chunking, threads, blocks,
// and ranks (share.go). Ranks divide rows and heads, and exchange the results of four stages per layer (exchange.go).
//
// A page of a mapped file that can't be read, because its disk fails, ends the step with an error.
//
// Activations are rounded to 8 bits per block of 32 before products with quantised weights, as in ggml; keys and
// values are halves; everything else is F32.
package cpu
