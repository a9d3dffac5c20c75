// Package pico embeds the language model that ships with Rouse: a real one (llama architecture, 1.8
// million parameters, ChatML), so small that every test, demonstration and first start can run it on any CPU.
//
// It is trained only on the text of package corpus, so the right answer to any prompt of its skills is known to
// the letter, and corpus.Check checks it. MODEL_CARD.md says what it can do, how well, and how to make it again.
//
// The package does not load, copy or check the bytes; the engine opens them with gguf.Parse, which
// shares the memory. All of it is safe for many goroutines.
package pico

import _ "embed"

// Name is the model name under which Rouse serves pico.
const Name = "pico"

//go:embed pico-q8_0.gguf
var file []byte

// GGUF returns the model file: GGUF version 3, matrices as Q8_0. It is the embedded memory itself, which must not be
// written to.
func GGUF() []byte { return file }
