package field

import (
	"encoding/json"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// means says whether a name as it is written, a valid string with its quotes, is
// want, with or without regard to case.
func means(name []byte, want string, fold bool) bool {
	name = name[1 : len(name)-1]
	if !fold && string(name) == want { // by far most names are plain
		return true
	}
	for len(name) > 0 && want != "" {
		r, n := decode(name)
		w, m := utf8.DecodeRuneInString(want)
		if r != w && (!fold || !alike(r, w)) {
			return false
		}
		name, want = name[n:], want[m:]
	}
	return len(name) == 0 && want == ""
}

// alike says whether two runes differ in case only.
func alike(a, b rune) bool {
	for r := unicode.SimpleFold(a); r != a; r = unicode.SimpleFold(r) {
		if r == b {
			return true
		}
	}
	return false
}

// decode reads one rune of a string's inside and returns its length there. As in
// encoding/json, half a surrogate pair and invalid UTF-8 are U+FFFD.
func decode(b []byte) (rune, int) {
	if b[0] != '\\' {
		return utf8.DecodeRune(b)
	}
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, _ := unit(b)
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if low, ok := unit(b[6:]); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, 12
			}
		}
		return utf8.RuneError, 6
	}
	return rune(b[1]), 2
}

// unit reads \uXXXX at the start of b.
func unit(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendName appends a name with its quotes.
func appendName(b []byte, name string) []byte {
	quoted, _ := json.Marshal(name) // strings always marshal
	return append(b, quoted...)
}
