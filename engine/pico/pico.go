// Package pico embeds the language model that ships with Rouse: a real one (llama architecture, 1.8 million
// parameters, ChatML), small enough for any CPU. It is trained only on the text of package corpus, so the right
// answer to any prompt of its skills is known to the letter. See MODEL_CARD.md.
package pico

import _ "embed"

// Name is the model name under which Rouse serves pico.
const Name = "pico"

//go:embed pico-q8_0.gguf
var file []byte

// GGUF returns the model file: GGUF version 3, matrices as Q8_0. It is the embedded memory itself, which must not be
// written to.
func GGUF() []byte { return file }
