// Package model turns an open GGUF file into the numbers and weights of a known
// transformer architecture.
//
// It reads the hyperparameters (Config), finds every weight by its name, checks
// each shape against the hyperparameters, and gives weights as views of the file's
// own memory: loading a model of any size copies a few norm vectors at most. It
// refuses whatever it would otherwise compute wrongly in silence: an unknown
// architecture, a tensor type outside F32, F16, BF16 and Q8_0, a RoPE scaling it
// does not know, a mixture of experts, and any tensor that no part of the forward pass
// would use.
//
// It does no arithmetic; package infer/cpu does. An architecture is an entry in the
// table architectures: what differs between llama and qwen2 is the order of RoPE
// pairs and the biases of the attention projections. Names of metadata keys and
// tensors follow llama.cpp (gguf-py/gguf/constants.py).
//
// All functions are safe for many goroutines. What Load returns is read only and
// valid until the file closes.
package model
