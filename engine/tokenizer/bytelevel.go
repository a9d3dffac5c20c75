package tokenizer

import "unicode/utf8"

// GPT-2's vocabulary files write every byte as a printable character: printable Latin-1 stands for itself, the other 68
// bytes are numbered upwards from U+0100 (openai/gpt-2, encoder.py, bytes_to_unicode).

const replacement = utf8.RuneError

// byteRunes maps a byte to its character, runeBytes back (-1 for a character that stands for no byte).
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

// rawBytes turns a token's text into the bytes it stands for; false where a character stands for no byte.
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

// ByteText returns the text by which a byte-level vocabulary writes raw: what a trainer puts into a vocabulary's
// tokens and merges.
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
