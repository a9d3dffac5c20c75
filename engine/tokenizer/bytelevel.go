package tokenizer

import "unicode/utf8"

// GPT-2's vocabularies write bytes as printable characters: printable Latin-1 as itself, the others from U+0100 on
// (openai/gpt-2, encoder.py, bytes_to_unicode).

const replacement = utf8.RuneError

// runeBytes is the inverse of byteRunes, or -1.
var (
	byteRunes = makeByteRunes()
	runeBytes = makeRuneBytes()
)

func makeByteRunes() (m [256]rune) {
	next := rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[b] = rune(b)
			continue
		}
		m[b] = next
		next++
	}
	return m
}

func makeRuneBytes() (m [324]int16) {
	for i := range m {
		m[i] = -1
	}
	for b, r := range byteRunes {
		m[r] = int16(b)
	}
	return m
}

// rawBytes returns false if a character stands for no byte.
func rawBytes(text string) (string, bool) {
	buf := make([]byte, 0, len(text))
	for _, r := range text {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return "", false
		}
		buf = append(buf, byte(runeBytes[r]))
	}
	return string(buf), true
}

// ByteText returns raw as a byte-level vocabulary writes it.
func ByteText(raw string) string {
	runes := make([]rune, len(raw))
	for i := range len(raw) {
		runes[i] = byteRunes[raw[i]]
	}
	return string(runes)
}

func decodeRune(s string) (rune, int) {
	if len(s) > 0 && s[0] < utf8.RuneSelf {
		return rune(s[0]), 1
	}
	return utf8.DecodeRuneInString(s)
}
