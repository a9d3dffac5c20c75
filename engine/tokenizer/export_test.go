package tokenizer

// Split cuts a text as a pre-tokenizer does, by its name.
func Split(pre, text string) (words []string, err error) {
	p, err := findPreTokenizer(pre)
	if err == nil {
		p.split(text, func(word string) { words = append(words, word) })
	}
	return words, err
}

// PreTokenizers are the names that files may have.
func PreTokenizers() map[string]bool {
	names := map[string]bool{}
	for name, p := range preTokenizers {
		names[name] = p.nfc
	}
	return names
}
