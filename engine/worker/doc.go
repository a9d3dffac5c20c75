// Package worker runs a model for an engine: in its own process, in several that share one model, or in the engine's.
// Code and protocol (wire.go) are the same.
//
// The worker's side is [Serve]. The life of a step there:
//
//  1. A batch is decoded while the previous one computes.
//  2. Prepare: each item becomes tokens, position and blocks. The table of sequences has the tokens
//     that the engine did not know yet, because this worker sampled them.
//  3. Forward: package infer computes logits, or hidden states.
//  4. Sample: package sample chooses tokens, for many sequences in parallel.
//  5. The output is sent. The device does not wait for the engine: the next batch is there.
//
// The engine's side is a [Supervisor], which starts a worker by a [Launch]. A worker that exits, sends no heartbeat,
// exceeds the step limit, or violates the protocol is killed and replaced: after [Event.Lost] the engine recomputes
// what was lost.
//
// The package knows no requests and texts, and sends no output twice.
//
// The CUDA worker is the Python program in the folder cuda: worker.py has the loop, steps.py prepares batches, model.py
// is the forward pass. Its test_*.py run with `python3 -m unittest` in their folder.
package worker
