package tokenizer

import "strings"

// wordCased is Mistral's Tekken: words end before capitals after small letters. In llama.cpp's form, in which letters
// outside ASCII are capital and small at once (here U and L), it is
//
//	[^\r\n\p{L}\p{N}]?U*L+|[^\r\n\p{L}\p{N}]?U+L*|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// English contractions may end a word.
func wordCased(s string, digits int, contractions bool) int {
	r, n := decodeRune(s)
	c := classOf(r)
	// 1. letters, after one other character but a line end
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
	// 3. punctuation, after a space, before line ends and slashes
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

// casedLetters returns the length of U*L+, or else of U+L*.
func casedLetters(s string) int {
	// U*, and the end of its last letter that is small as well
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
		return both // U*L+, where U* gives back to L+
	default:
		return upper // U+
	}
}

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

// lineSpaces returns the length of white space up to its last line end, else spaces.
func lineSpaces(s string) int {
	if ws := run(s, space); ws > 0 {
		if k := strings.LastIndexAny(s[:ws], "\r\n"); k >= 0 {
			return k + 1
		}
	}
	return spaces(s)
}
