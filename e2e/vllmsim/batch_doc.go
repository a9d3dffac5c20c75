// The files batch_* are the scheduler: continuous batching with a paged KV cache and prefix sharing, first come,
// first served. It has no clock and no goroutine; one goroutine at a time may call. [Batch.Plan] chooses what one
// step computes, the caller waits, and [Batch.Commit] counts the tokens.
package vllmsim
