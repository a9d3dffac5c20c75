// Package gguf reads and writes GGUF, the single-file model format of the
// ggml family: metadata (hyperparameters, tokenizer, chat template) and tensors.
// The format is described in ggml's docs/gguf.md.
//
// The reader maps the file read only and outside the Go heap, so opening a model of many gigabytes costs as much as
// reading its header. Open and Parse check everything that a later access relies on: each count, length, offset,
// dimension and alignment is compared with the actual bytes before anything is allocated. So a truncated, damaged or
// hostile file gives an error that names the byte offset and what was expected there, and never a panic. No accessor
// of an open file fails later because of the file's bytes.
//
// It refuses big-endian files, versions other than 2 and 3, repeated keys and tensor names, nested arrays deeper than
// maxDepth, and tensors that lie outside the file. It does not check that the metadata makes a usable model; package
// model does. Files with tensor types that it cannot decode (IQ2_XS and so on) open, so that tools can show them.
//
// The life of a file:
//
//  1. Open maps it, with the other files of a model that llama-gguf-split has split, or
//     Parse borrows bytes that are already in memory.
//  2. The header is read once; metadata values stay where they are and are
//     decoded on demand.
//  3. String, Uint, Tensor and the other accessors are called, from any goroutine.
//  4. Release may drop the pages from residency; the next access reads them again.
//  5. Close unmaps. Tensor data from the file must not be used after that:
//     it is the mapping itself, not a copy. Strings and metadata slices are copies.
//
// If another process truncates a mapped file, the operating system sends SIGBUS on access. Replace model files by
// renaming, as downloads do.
package gguf
