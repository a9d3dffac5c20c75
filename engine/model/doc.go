// Package model reads the hyperparameters and weights of a known architecture from an open GGUF file.
//
// It finds every weight by name, checks each shape, and returns views of the file's memory. It rejects what would
// otherwise be computed wrongly: unknown architectures and RoPE scalings, tensor types that can't be decoded, and
// tensors that the forward pass would not use.
//
// Its only arithmetic is Model.Rope. An architecture is an entry in the table architectures; Layer documents the
// computation, where absent parts are skipped. Names of keys and tensors are llama.cpp's (gguf-py/gguf/constants.py).
//
// All functions except Limit are safe for many goroutines. The result of Load is valid until the file is closed.
package model
