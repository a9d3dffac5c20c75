// Package gguf reads and writes GGUF, the model format of the ggml family (docs/gguf.md of ggml): metadata and tensors.
//
// The reader maps the file read only. Open and Parse check all that a later access relies on, before anything is
// allocated. So a damaged or hostile file gives an error that names the byte offset, and never a panic, and no accessor
// fails later because of the file's bytes.
//
// It refuses big-endian files, versions other than 2 and 3, repeated keys and tensor names, arrays nested deeper than
// maxDepth, and tensors outside the file. Whether the metadata makes a usable model is for package model. Files with
// unknown tensor types open, so that tools can show them.
//
// The life of a file:
//
//  1. Open maps it, with the other files that llama-gguf-split made, or Parse borrows bytes in memory.
//  2. The header is read once; metadata values are decoded on demand.
//  3. Accessors are called, from any goroutine.
//  4. Release may drop the pages; the next access reads them again.
//  5. Close unmaps. Tensor data are the mapping; strings and metadata slices are copies.
//
// If another process truncates a mapped file, the system sends SIGBUS on access: replace model files by renaming.
package gguf
