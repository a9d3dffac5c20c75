package span

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// plain are the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// text returns the offset after the string that begins with the quote at data[at].
func text(data []byte, at int) (int, error) {
	for i := at + 1; i < len(data); i++ {
		c := data[i]
		switch {
		case plain[c]:
		case c == '"':
			return i + 1, nil
		case c != '\\':
			return 0, &Error{i, "a control character stands in a string: write it as an escape"}
		default:
			n, err := escape(data, i)
			if err != nil {
				return 0, err
			}
			i += n - 1
		}
	}
	return 0, &Error{len(data), "it ends within a string"}
}

// escape returns the length of the escape at data[i].
func escape(data []byte, i int) (int, error) {
	if i+1 >= len(data) {
		return 0, &Error{len(data), "it ends within a string"}
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if len(data)-i >= 6 && hex(data[i+2:i+6]) >= 0 {
			return 6, nil
		}
	}
	return 0, &Error{i, "an escape is not one of JSON's"}
}

// hex reads four hexadecimal digits; -1: they are not.
func hex(p []byte) rune {
	var r rune
	for _, c := range p {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Text decodes a string in place. raw is its span, quotes included, of a value
// that was read before; its bytes are overwritten. A surrogate without its
// other half becomes U+FFFD.
func Text(raw []byte) []byte { return decode(raw[1 : len(raw)-1]) }

// unescaped are the characters that single letters stand for.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// decode decodes the well-formed inside of a string in place.
func decode(p []byte) []byte {
	from := bytes.IndexByte(p, '\\')
	if from < 0 {
		return p
	}
	to := from
	for from < len(p) {
		if c := p[from]; c != '\\' {
			p[to] = c
			to, from = to+1, from+1
			continue
		}
		if c := p[from+1]; c != 'u' {
			p[to] = unescaped[c]
			to, from = to+1, from+2
			continue
		}
		r := hex(p[from+2 : from+6])
		from += 6
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if len(p)-from >= 6 && p[from] == '\\' && p[from+1] == 'u' {
				low = hex(p[from+2 : from+6])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				from += 6
			}
		}
		to += utf8.EncodeRune(p[to:], r) // its escape was longer than it is
	}
	return p[:to]
}

const digitsOfHex = "0123456789abcdef"

// once and twice are what bytes become inside a string, and inside a string in
// a string; empty: they stand for themselves.
var once, twice = func() (a, b [256]string) {
	quote := func(s string) string {
		var q []byte
		for i := range len(s) {
			if e := a[s[i]]; e != "" {
				q = append(q, e...)
			} else {
				q = append(q, s[i])
			}
		}
		return string(q)
	}
	for c := range 256 {
		if !plain[c] {
			a[c] = `\u00` + string(digitsOfHex[c>>4]) + string(digitsOfHex[c&15])
		}
	}
	for c, e := range map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`} {
		a[c] = e
	}
	for c := range 256 {
		if a[c] != "" {
			b[c] = quote(a[c])
		}
	}
	return a, b
}()

// Escape appends s as it stands inside a JSON string, without quotes. s must be UTF-8.
func Escape[T []byte | string](dst []byte, s T) []byte { return appendEscaped(dst, s, &once) }

// EscapeTwice appends s as it stands inside a JSON string of a document that is
// itself inside a JSON string, without quotes. s must be UTF-8.
func EscapeTwice[T []byte | string](dst []byte, s T) []byte { return appendEscaped(dst, s, &twice) }

func appendEscaped[T []byte | string](dst []byte, s T, table *[256]string) []byte {
	from := 0
	for i := range len(s) {
		if plain[s[i]] {
			continue
		}
		dst = append(dst, s[from:i]...)
		dst = append(dst, table[s[i]]...)
		from = i + 1
	}
	return append(dst, s[from:]...)
}
