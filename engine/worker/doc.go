// Package worker runs a model for an engine: in its own process, in several that share one model, or in the engine's
// process. Code and protocol (wire.go) are the same in all three cases.
//
// The worker's side is [Serve]. The life of a step there:
//
//  1. A batch arrives and is decoded while the previous one computes.
//  2. Prepare: the table of sequences is updated, and each item becomes tokens, position and blocks. Tokens that the
//     engine did not know yet are in the table, because this worker sampled them.
//  3. Forward: package infer computes logits, or hidden states.
//  4. Sample: package sample chooses the tokens, for many sequences in parallel.
//  5. The output is sent. The next batch has arrived already, so the device does not wait while the engine handles
//     the output.
//
// The engine's side is a [Supervisor]. It starts a worker by a [Launch], makes it load the model, forwards batches and
// outputs, and monitors it. A worker that exits, sends no heartbeat, exceeds the step limit, or violates the protocol
// is killed and replaced. The engine gets [Event.Lost] and recomputes what was lost. Adapters are loaded again; a
// sleeping worker is replaced on wake.
//
// The package does not know requests and texts, computes nothing that the engine did not ask for, and sends no output
// twice.
//
// The worker for CUDA devices is the Python program in the folder cuda. There worker.py has the loop, steps.py prepares
// batches, holder.py holds the model and puts it to sleep, shapes.py describes the families of models. model.py is the
// forward pass in torch, ranks.py runs it in several processes, attention.py is attention and paged.py the same in
// Triton. sampling.py chooses tokens, adapters.py is LoRA, blocks.py keeps cache blocks through a sleep, gguf.py and
// wire.py read the formats. test_*.py run with `python3 -m unittest` in their folder.
package worker
