// The files words_* are the language of the simulated model: a reversible tokenizer, and a text that is a function of the
// request.
//
// A token is a word of a small vocabulary, with the space before it, or a piece
// of at most four bytes of anything else. So token counts are near those of real
// tokenizers (about four characters of English a token), every text survives
// [Encode] and [Decode], and no table is shared between processes.
//
// [Text] makes sentences of the vocabulary from a seed. The same seed gives the same sentences everywhere and for ever;
// [Seed] makes one from what a request says. [Garbage] is the output of a model whose weights are lost.
//
// Everything here is pure and safe for many goroutines.
package vllmsim
