// Package worker runs a model for an engine: in a process of its own, in several that
// share one model, or in the engine's process. Wherever it runs the code is the
// same, and so are the bytes (package wire).
//
// The worker's side is [Serve]. The life of a step there:
//
//  1. A batch arrives and is decoded while the one before it computes.
//  2. Prepare: the table of sequences, which the worker keeps, is brought up to date; each
//     item becomes tokens, position and blocks. Tokens that the engine did not know when it made the
//     batch are in the table: this worker chose them.
//  3. Forward: package infer computes logits, or hidden states.
//  4. Sample: package sample chooses the tokens, many sequences in parallel.
//  5. The output is sent. The next batch is there already, and so the device does not wait for
//     the engine: what the engine does about the output it does meanwhile.
//
// The engine's side is a [Supervisor]. It starts a worker by a [Launch], has it load the
// model, passes batches and outputs, and looks whether it lives: a worker that ends, that
// is silent, that takes too long for a step, or that sends what is no frame, is killed and
// replaced, and the engine is told ([Event.Lost]), so that it computes again what was
// lost. Adapters are loaded again; a sleeping worker is replaced when it is woken.
//
// What it refuses: to know requests or texts; to compute anything that the engine did
// not ask for; to send an output twice.
package worker
