// Package pico holds the language model that ships with Rouse, inside the binary: a real one (llama architecture, 1.8
// million parameters, ChatML) and so small that every test, demonstration and first start can run it on any CPU.
//
// It is trained on nothing but the text of package corpus, so for any prompt of its skills the right answer is known to
// the letter: corpus.Check judges it. MODEL_CARD.md says what it can do, how well, and how to make it again.
//
// The package only carries bytes. It does not load, copy or check them; the engine opens them with gguf.Parse, which
// shares the memory. All of it is safe for many goroutines.
package pico

import _ "embed"

// Name is the model name under which Rouse serves pico.
const Name = "pico"

//go:embed pico-q8_0.gguf
var file []byte

// GGUF is the model file: GGUF version 3, matrices as Q8_0. It is the embedded memory itself, which must not be written to.
func GGUF() []byte { return file }
