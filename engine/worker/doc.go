// Package worker runs a model for an engine: in a process of its own, in several that
// share one model, or in the engine's process. The code is the same in all
// three cases, and so is the protocol (package wire).
//
// The worker's side is [Serve]. The life of a step there:
//
//  1. A batch arrives and is decoded while the one before it computes.
//  2. Prepare: the worker's table of sequences is updated, and each
//     item becomes tokens, position and blocks. Tokens that the engine did not know when it made the
//     batch are in the table, since this worker sampled them.
//  3. Forward: package infer computes logits, or hidden states.
//  4. Sample: package sample chooses the tokens, many sequences in parallel.
//  5. The output is sent. The next batch has arrived already, so the device does not wait
//     while the engine handles the output.
//
// The engine's side is a [Supervisor]. It starts a worker by a [Launch], has it load the
// model, passes batches and outputs, and monitors it: a worker that exits, that
// sends no heartbeat, that exceeds the time limit of a step, or that breaks the protocol is killed and
// replaced. The engine gets [Event.Lost] and recomputes what was
// lost. Adapters are loaded again; a sleeping worker is replaced when it is woken.
//
// What it does not do: it knows no requests and no texts, computes nothing that the engine did
// not ask for, and sends no output twice.
package worker
