package tokenizer

import "strings"

// wordCased is Mistral's Tekken: words end where small letters are followed by capitals, digits are words of so many,
// and slashes go with the punctuation in front of them. In llama.cpp's form, in which letters outside ASCII are capital and small
// at once (written U and L here), it is
//
//	[^\r\n\p{L}\p{N}]?U*L+|[^\r\n\p{L}\p{N}]?U+L*|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// English contractions may belong to the word in front of them.
func wordCased(s string, digits int, contractions bool) int {
	r, n := decodeRune(s)
	c := classOf(r)
	// 1. letters, with one character in front of them that is no letter, digit or line end
	start := 0
	if c != letter && c != number && r != '\r' && r != '\n' {
		start = n
	}
	if k := casedLetters(s[start:]); k > 0 {
		end := start + k
		if contractions {
			end += contraction(s[end:], true)
		}
		return end
	}
	// 2. digits
	if c == number {
		return numbers(s, digits)
	}
	// 3. punctuation, with a space in front, and line ends and slashes behind
	start = 0
	if r == ' ' && len(s) > 1 {
		r, _ = decodeRune(s[1:])
		start, c = 1, classOf(r)
	}
	if c == other {
		end := start + run(s[start:], other)
		for end < len(s) && strings.IndexByte("\r\n/", s[end]) >= 0 {
			end++
		}
		return end
	}
	return lineSpaces(s)
}

// casedLetters returns the length of U*L+, or else of U+L*, at the beginning of s.
func casedLetters(s string) int {
	// U*, and where the last letter in it ends that is small as well
	upper, both := 0, 0
	for upper < len(s) {
		r, n := decodeRune(s[upper:])
		if classOf(r) != letter || r >= 'a' && r <= 'z' {
			break
		}
		upper += n
		if r >= 0x80 {
			both = upper
		}
	}
	end := upper
	for end < len(s) {
		r, n := decodeRune(s[end:])
		if classOf(r) != letter || r >= 'A' && r <= 'Z' {
			break
		}
		end += n
	}
	switch {
	case end > upper:
		return end // U*L+
	case both > 0:
		return both // U*L+, where U* gives the last letter that it can back to L+
	default:
		return upper // U+
	}
}

// numbers returns the length of the numbers, at most most of them, that s begins with.
func numbers(s string, most int) int {
	end := 0
	for ; most > 0 && end < len(s); most-- {
		r, n := decodeRune(s[end:])
		if classOf(r) != number {
			break
		}
		end += n
	}
	return end
}

// lineSpaces returns the length of the white space at the beginning of s up to its last line end, or else of what
// spaces returns.
func lineSpaces(s string) int {
	if ws := run(s, space); ws > 0 {
		if k := strings.LastIndexAny(s[:ws], "\r\n"); k >= 0 {
			return k + 1
		}
	}
	return spaces(s)
}
