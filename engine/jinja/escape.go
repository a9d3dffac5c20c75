package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// simpleEscapes are the escapes of one character in Python's strings.
var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape is the value of a string literal; an unknown escape stands for itself, as in Python.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if text, ok := simpleEscapes[c]; ok {
			b.WriteString(text)
			continue
		}
		switch {
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i:i+n], 8, 32) // at most three octal digits
			b.WriteRune(rune(v))
			i += n - 1
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n >= len(s) {
				l.fail("a string has the escape \\%c with too few digits", c)
			}
			v, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
			if err != nil || !utf8.ValidRune(rune(v)) || v > utf8.MaxRune {
				l.fail("a string has the escape \\%s, which is no character", s[i:i+1+n])
			}
			b.WriteRune(rune(v))
			i += n
		case c == 'N':
			l.fail(`escapes by name (\N{…}) are not supported: write the character`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}
