package tokenizer

import "context"

// TextBytes bounds the memory of a text for each of its bytes.
const TextBytes = textBytes

// Enter takes a text's place among the texts that are encoded.
func (t *Tokenizer) Enter(ctx context.Context, bytes int) (leave func(), err error) {
	return t.limit.enter(ctx, bytes)
}

// MostMemory returns the most memory of all texts together, computed from the lanes.
func MostMemory() (bytes int) {
	for _, l := range lanes {
		bytes += l.bytes * l.texts * textBytes
	}
	return bytes
}

// Split cuts a text as a pre-tokenizer does, by its name.
func Split(pre, text string) (words []string, err error) {
	p, err := findPreTokenizer(pre)
	if err == nil {
		p.split(text, func(word string) { words = append(words, word) })
	}
	return words, err
}

// PreTokenizers returns the names that files may have.
func PreTokenizers() map[string]bool {
	names := map[string]bool{}
	for name, p := range preTokenizers {
		names[name] = p.nfc
	}
	return names
}

// Type returns the kind of id, or 0.
func (t *Tokenizer) Type(id int32) Type {
	if id < 0 || int(id) >= len(t.types) {
		return 0
	}
	return t.types[id]
}
