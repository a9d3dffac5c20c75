// Package kernel holds the inner loops of the forward pass in plain Go: products of weight
// rows with activation vectors, normalisation, rotation, softmax. It knows slices of
// numbers and nothing of models, threads or caches.
//
// Two promises shape the code. Every result is one fixed-order computation of its own
// inputs: how many vectors are multiplied at once, and which rows a call covers, never
// changes a bit of it. So floating-point products stand in explicit float32 conversions,
// which the language defines to forbid fusing them with the addition that follows, and loops
// that work on one vector and on several follow the same order. And nothing here
// allocates, except Q8Input when it grows.
//
// How it is fast without vector instructions:
//
//   - Q8_0 weights are multiplied with activations quantised to 8 bits in the same blocks of
//     32, as ggml does, with exact integer sums per block. A 64-bit multiplication
//     carries two products when there is one vector, and three when there are more;
//     q8.go explains how.
//   - F32 rows are multiplied four at a time, so that each load of the vector serves four
//     sums that do not wait for one another.
//   - F16 and BF16 rows are widened to F32 once for all vectors.
//
// These loops are the reference against which faster ones for one processor are checked.
//
// All functions are safe for many goroutines on disjoint outputs. Lengths are the
// caller's promise: a slice too short panics.
package kernel
