// Package model reads the hyperparameters and weights of a known transformer architecture from an open GGUF file.
//
// It reads the hyperparameters (Config), finds every weight by name, checks each shape, and returns weights as views
// of the file's memory: loading a model of any size copies a few norm vectors at most. It rejects what would otherwise
// be computed wrongly without an error: an unknown architecture, a tensor type that cannot be decoded, an unknown RoPE
// scaling, and any tensor that the forward pass would not use.
//
// It does no arithmetic except for the angles of rotations (Model.Rope); package infer/cpu does. An architecture is an
// entry in the table architectures; Layer documents the order of computation, where absent parts are skipped. Names of
// metadata keys and tensors follow llama.cpp (gguf-py/gguf/constants.py).
//
// Supported architectures:
//
//   - llama: Llama 1 to 3, Mistral, Mixtral (experts) and the many that share their shape.
//   - qwen2, qwen3, qwen3moe: Qwen 2 and 2.5, Qwen 3, and its mixtures of experts.
//   - gemma, gemma2, gemma3: of Gemma 3 the text part; tensors for pictures are ignored.
//   - bert, nomic-bert: encoders that make vectors (BGE, E5, GTE, MiniLM, Nomic Embed) or rank documents.
//   - phi3: Phi 3, 3.5 and 4, with the short and the long context.
//
// All functions except Limit are safe for many goroutines. The result of Load is read-only and valid until the file is
// closed.
package model
