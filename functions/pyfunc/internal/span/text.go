package span

import (
	"encoding/binary"
	"math/bits"
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

// odd marks the bytes of a word that don't stand for themselves in a string, by
// their highest bits: quotes, backslashes and what is below a space. A wrong mark
// can only stand above a right one, so the lowest is right; 0: there are none.
func odd(word uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := word^(ones*'"'), word^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (word-ones*' ')&^word) & highs
}

// run returns how many bytes from s[i] on stand for themselves.
func run[T []byte | string](s T, i int) int {
	from := i
	for ; i+8 <= len(s); i += 8 {
		t := s[i : i+8]
		word := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 | uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		if marks := odd(word); marks != 0 {
			return i - from + bits.TrailingZeros64(marks)/8
		}
	}
	for i < len(s) && plain[s[i]] {
		i++
	}
	return i - from
}

// text returns the offset after the string that begins with the quote at data[at].
func text(data []byte, at int) (int, error) {
	for i := at + 1; ; {
		i += run(data, i)
		for i+1 < len(data) && data[i] == '\\' && unescaped[data[i+1]] != 0 {
			i += 2
		}
		switch {
		case i >= len(data):
			return 0, cut(data)
		case data[i] == '"':
			return i + 1, nil
		case data[i] == '\\':
			n, err := escape(data, i)
			if err != nil {
				return 0, err
			}
			i += n
		case data[i] < ' ':
			return 0, control(i)
		}
	}
}

func cut(data []byte) error { return &Error{len(data), "it ends within a string"} }

func control(i int) error {
	return &Error{i, "a control character stands in a string: write it as an escape"}
}

// Decode decodes the string that begins with the quote at data[at], in place,
// and returns where it ends. The bytes of its span are overwritten. A surrogate
// without its other half becomes U+FFFD.
func Decode(data []byte, at int) (decoded []byte, end int, err error) {
	if !Is(data, at, '"') {
		return nil, 0, unexpected(data, at, "a string")
	}
	from := at + 1 + run(data, at+1)
	for to := from; from < len(data); {
		switch c := data[from]; {
		case c == '"':
			return data[at+1 : to : to], from + 1, nil
		case c != '\\' && c < ' ':
			return nil, 0, control(from)
		case c != '\\':
			from, to = move(data, from, to)
		case from+1 < len(data) && unescaped[data[from+1]] != 0:
			data[to] = unescaped[data[from+1]]
			from, to = from+2, to+1
		default:
			if _, err := escape(data, from); err != nil {
				return nil, 0, err
			}
			from, to = unescape(data, from, to)
		}
	}
	return nil, 0, cut(data)
}

// move moves the run of plain bytes at p[from] down to p[to].
func move(p []byte, from, to int) (int, int) {
	for from+8 <= len(p) {
		word := binary.LittleEndian.Uint64(p[from:])
		marks := odd(word)
		if marks == 0 {
			binary.LittleEndian.PutUint64(p[to:], word)
			from, to = from+8, to+8
			continue
		}
		n := bits.TrailingZeros64(marks) / 8
		if from-to >= 8 { // what lies between was read
			binary.LittleEndian.PutUint64(p[to:], word)
		} else {
			copy(p[to:], p[from:from+n])
		}
		return from + n, to + n
	}
	for from < len(p) && plain[p[from]] {
		p[to] = p[from]
		from, to = from+1, to+1
	}
	return from, to
}

// escape returns the length of the escape at data[i].
func escape(data []byte, i int) (int, error) {
	if i+1 >= len(data) {
		return 0, cut(data)
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

// unescaped are the characters that single letters stand for.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape decodes the well-formed escape at p[from] to p[to], and returns where
// the next byte is and where it goes.
func unescape(p []byte, from, to int) (int, int) {
	if c := p[from+1]; c != 'u' {
		p[to] = unescaped[c]
		return from + 2, to + 1
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
	return from, to + utf8.EncodeRune(p[to:], r) // its escape was longer than it is
}

// decode decodes the well-formed inside of a string in place.
func decode(p []byte) []byte {
	from, to := 0, 0
	for from < len(p) {
		if p[from] == '\\' {
			from, to = unescape(p, from, to)
			continue
		}
		p[to] = p[from]
		from, to = from+1, to+1
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
	for i := 0; i < len(s); i++ {
		n := run(s, i)
		dst = append(dst, s[i:i+n]...)
		if i += n; i < len(s) {
			dst = append(dst, table[s[i]]...)
		}
	}
	return dst
}
