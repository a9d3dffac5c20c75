// Package gguf reads and writes GGUF, the single-file model format of the
// ggml family: metadata (hyperparameters, tokenizer, chat template) and tensors.
// The format is described in ggml's docs/gguf.md.
//
// The reader maps the file read only and outside the Go heap, so opening a
// model of many gigabytes costs as much as its header. Open and Parse check
// everything that a later access relies on: each count, length, offset, dimension
// and alignment is compared with the bytes that are really there before anything
// is allocated, so a truncated, damaged or hostile file gives an error that names
// the byte offset and what was expected there, and never a panic. What opens is
// whole: no accessor fails later because of the file's bytes.
//
// What it refuses: big-endian files, versions other than 2 and 3, repeated
// keys and tensor names, nested arrays deeper than maxDepth, tensors that lie
// outside the file. What it does not judge: whether the metadata makes a usable
// model; that is package model's work. Tensor types that it cannot decode
// (IQ2_XS and so on) open here, so that tools can show the file.
//
// The life of a file:
//
//  1. Open maps it, with the other files of a model that llama-gguf-split has split, or
//     Parse borrows bytes that are already in memory.
//  2. The header is walked once; metadata values stay where they are and are
//     decoded when asked for.
//  3. String, Uint, Tensor and the other accessors are used, from any goroutine.
//  4. Release may drop the pages from residency; the next access brings them back.
//  5. Close unmaps. Tensor data taken from the file must not be touched after that:
//     it is the mapping itself, not a copy. Strings and metadata slices are copies.
//
// A file that another process truncates while it is mapped makes the operating
// system deliver SIGBUS on access; replace model files by renaming, as downloads do.
package gguf
