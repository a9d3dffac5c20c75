// The files wire_* are the protocol between the engine and its workers. This comment is all of it, for workers in other
// languages; testdata/ has frames with their meaning.
//
// # Frames
//
// Both directions of a byte stream (a Unix socket pair: the worker's end is file descriptor 3) carry frames:
//
//	u32 little endian   length n of the rest, 1 to 2²⁸
//	u8                  kind
//	n-1 bytes           payload
//
//	kind  name       from    payload
//	1     hello      both    JSON Hello, the first frame of each side
//	2     batch      engine  binary: one step
//	3     output     worker  binary: the result of a step
//	4     op         engine  JSON Op: load, sleep, wake, load_adapter, unload_adapter, stats, save_blocks, load_blocks
//	5     reply      worker  JSON Reply to an op
//	6     heartbeat  worker  empty; the process lives
//
// # The life of a worker
//
//  1. Both sides send hello, and close the connection if the protocol numbers differ.
//  2. The engine sends the op load; the reply has the model's shape and the cache's geometry.
//  3. The engine sends batches, at most depth (of hello) ahead. The worker computes them in
//     order and answers each with an output of the same step number. Ops are done in their
//     place between the batches.
//  4. Every heartbeat_ms (of hello; 0: none) the worker sends a heartbeat, also while it computes.
//  5. At end of file the worker exits.
//
// # State of a worker
//
// The worker keeps for every sequence, by its id: its tokens, the number of them in the prompt, its cache blocks, and
// its Spec. A batch says what is new. A sequence's first item (begin) has everything, and replaces a sequence of that
// id. An item computes the tokens at positions pos to pos+count-1. If the engine did not know the last one, the worker
// chose and appended it in an earlier step.
//
// # Numbers
//
// A uvarint has seven bits a byte, the lowest first, and bit 7 set in all bytes but
// the last (as in Protocol Buffers). A svarint is a uvarint of a zigzag number: 0, -1, 1, -2 … are 0, 1, 2, 3 ….
// An id is a svarint: the difference to the id before it in the same list, 0 before the first. A
// float is an IEEE 754 single, little endian. A text is a uvarint length and UTF-8 bytes.
//
// # Batch
//
//	uvarint  step
//	uvarint  number of ends;   each: id              sequences to forget, before anything else
//	uvarint  number of copies; each: uvarint from, uvarint to    cache blocks to copy whole, in order, before computing
//	uvarint  number of items;  each:
//	    id
//	    u8       flags: 1 begin, 2 sample, 4 score, 8 pool, 16 mask, 32 draft, 64 many, 128 blocks
//	    uvarint  pos
//	    uvarint  count                            only if many; else it is 1
//	    uvarint  number of blocks, each: svarint  only if blocks: new ones, each the difference to
//	                                              the one before it here, 0 before the first
//	    if begin:
//	        uvarint  tokens of the prompt
//	        uvarint  number of known tokens, the prompt's included; each: uvarint
//	        text     Spec as JSON; empty means all zero
//	    if draft:
//	        uvarint  number of guesses, at least 1; each: uvarint
//	    if mask:
//	        uvarint  number w of 64-bit words
//	        uvarint  number k of words that follow
//	        k = w: w words, little endian; bit t%64 of word t/64 allows token t
//	        k < w: k times a uvarint gap and a word; gap words before it are zero; the rest is zero
//
// Sample: choose a token after the last position. Score: report the log probability of each prompt token from pos+1 to
// pos+count, where the prompt has one. Pool: the prompt ends here, report its vector. A sequence whose Spec asks for a
// vector is computed from position 0 without gaps.
//
// Guesses are the last of the count tokens, not yet part of the sequence. The worker chooses a token after each
// position from before the first guess on, and stops after the first one that differs from its guess. All chosen tokens
// are appended and reported, one more than the correct guesses. A mask holds for the first one; with a mask there are
// no guesses.
//
// # Output
//
//	uvarint  step
//	uvarint  microseconds that the worker took for it
//	text     error; not empty: the step failed as a whole, and there are no items
//	uvarint  number of items, in the batch's order, those with sample, score or pool only; each:
//	    id
//	    u8       flags: 1 tokens, 2 logprobs, 4 scores, 8 vector, 16 error
//	    if tokens:
//	        uvarint  number; each: choice
//	    if scores:
//	        uvarint  prompt position of the first one
//	        uvarint  number; each: choice with logprob, whatever the flag says
//	    if vector:
//	        uvarint  number; each: float
//	    if error: text    this sequence failed, the others did not
//
//	choice:
//	    uvarint  token
//	    if logprobs: float, uvarint number of alternatives, each: uvarint token, float
//
// # Errors
//
// A decoder refuses frames that do not fit these rules, and takes no more memory than a small multiple of the frame.
// The side that receives such a frame closes the connection.
package worker
