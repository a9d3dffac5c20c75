// The files batch_* are the scheduler of the simulated engine: continuous batching
// with a paged KV cache and prefix sharing, first come, first served. It has no clock and no
// goroutine: each step says how long it lasts, and the caller lets the time pass.
//
//  1. [Batch.Add] puts a sequence into the queue.
//  2. [Batch.Plan] chooses what one step computes: the prompts of those that come in, which get the blocks of all their
//     tokens, and one token of each other running sequence; and tells the time that takes.
//  3. The caller waits that time.
//  4. [Batch.Commit] counts the tokens. A sequence whose output is complete leaves.
//
// Outputs are known when a sequence is added: the text of a simulated model is a
// function of its prompt. One goroutine at a time may call.
package vllmsim
