// Package model turns an open GGUF file into the numbers and weights of a known
// transformer architecture.
//
// It reads the hyperparameters (Config), finds every weight by its name, checks
// each shape against the hyperparameters, and gives weights as views of the file's
// own memory: loading a model of any size copies a few norm vectors at most. It
// refuses whatever it would otherwise compute wrongly in silence: an unknown
// architecture, a tensor type that cannot be decoded, a RoPE scaling it does not
// know, and any tensor that no part of the forward pass would use.
//
// It does no arithmetic but for the angles of rotations (Model.Rope); package infer/cpu
// does. An architecture is an entry in the table architectures; Layer says in which order
// its parts are computed, and what is absent is left out. Names of metadata keys and
// tensors follow llama.cpp (gguf-py/gguf/constants.py).
//
// Which files there are:
//
//   - llama: Llama 1 to 3, Mistral, Mixtral (experts) and the many that share their shape.
//   - qwen2, qwen3, qwen3moe: Qwen 2 and 2.5, Qwen 3, and its mixtures of experts.
//   - gemma, gemma2, gemma3: of Gemma 3 the text part; tensors for pictures are ignored.
//   - phi3: Phi 3, 3.5 and 4, with the short and the long context.
//
// All functions are safe for many goroutines, but for Limit. What Load returns is read only and
// valid until the file closes.
package model
