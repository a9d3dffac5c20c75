// The files batch_* are the scheduler of the simulated engine: continuous batching
// with chunked prefill, a paged KV cache with prefix sharing, and preemption, as
// vLLM's first-come-first-served scheduler does it. It has no clock and no
// goroutine: each step says how long it lasts, and the caller lets the time pass.
//
//  1. [Batch.Add] puts a sequence into the queue.
//  2. [Batch.Plan] chooses what one step computes: one token of each running
//     sequence, then pieces of prompts up to the budget of tokens; and tells the time
//     that takes. Where blocks run out, the newest running sequence gives its own
//     back and starts over at the head of the queue.
//  3. The caller waits that time.
//  4. [Batch.Commit] counts the tokens. A sequence whose output is complete leaves.
//
// Outputs are known when a sequence is added: the text of a simulated model is a
// function of its prompt. One goroutine at a time may call.
package vllmsim
