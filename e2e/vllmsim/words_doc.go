// The files words_* are the language of the simulated model. A token is a word of a small vocabulary, with the space
// before it, or a piece of at most four bytes of anything else. So token counts are near those of real tokenizers,
// and processes share no table.
package vllmsim
