package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// kind is a token's kind. An operator is its own kind.
type kind string

const (
	kindEOF           kind = "the end of the template"
	kindData          kind = "a text"
	kindName          kind = "a name"
	kindString        kind = "a string"
	kindInteger       kind = "a number"
	kindFloat         kind = "a float"
	kindVariableBegin kind = "{{"
	kindVariableEnd   kind = "}}"
	kindBlockBegin    kind = "{%"
	kindBlockEnd      kind = "%}"
)

func (k kind) String() string {
	if strings.Contains(string(k), " ") {
		return string(k)
	}
	return "'" + string(k) + "'"
}

type token struct {
	kind kind
	text string
	line int
}

// is reports whether t is of a kind, or is the name k.
func (t token) is(k kind) bool {
	return t.kind == k || t.kind == kindName && t.text == string(k)
}

func (t token) String() string {
	if t.kind == kindName {
		return "'" + t.text + "'"
	}
	return t.kind.String()
}

// lexer splits a source as Jinja's does with trim_blocks and lstrip_blocks.
type lexer struct {
	src       string
	pos       int
	line      int
	lineStart bool
	tokens    []token
}

// lex returns tokens, the last of which is kindEOF. It panics with a *Error.
func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true, tokens: make([]token, 0, len(source)/8)}
	for l.pos < len(l.src) {
		l.text()
	}
	l.add(kindEOF, "")
	return l.tokens
}

func (l *lexer) fail(format string, args ...any) { panic(errorf(l.line, format, args...)) }

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{k, text, l.line})
}

func (l *lexer) advance(n int) {
	part := l.src[l.pos : l.pos+n]
	l.line += strings.Count(part, "\n")
	l.pos += n
	l.lineStart = strings.HasSuffix(part, "\n")
}

func (l *lexer) text() {
	rest := l.src[l.pos:]
	at := 0
	for at+1 < len(rest) && (rest[at] != '{' || strings.IndexByte("{%#", rest[at+1]) < 0) {
		at++
	}
	if at+1 == len(rest) {
		l.add(kindData, rest)
		l.advance(len(rest))
		return
	}
	open, sign := rest[at:at+2], ""
	n := at + 2
	if n < len(rest) && (rest[n] == '-' || rest[n] == '+') {
		sign = rest[n : n+1]
		n++
	}
	l.data(rest[:at], sign, open == "{{")
	l.advance(n)
	switch open {
	case "{{":
		l.add(kindVariableBegin, "")
		l.tag(kindVariableEnd)
	case "{#":
		l.comment()
	default:
		if m := rawBegin().FindString(l.src[l.pos:]); m != "" {
			l.advance(len(m))
			l.raw()
			return
		}
		l.add(kindBlockBegin, "")
		l.tag(kindBlockEnd)
	}
}

// data adds the text in front of a tag, without the white space that the tag removes.
func (l *lexer) data(text, sign string, variable bool) {
	switch {
	case sign == "-":
		text = strings.TrimRightFunc(text, isSpace)
	case sign != "+" && !variable:
		from := strings.LastIndexByte(text, '\n') + 1
		if (from > 0 || l.lineStart) && strings.TrimFunc(text[from:], isSpace) == "" {
			text = text[:from]
		}
	}
	if text != "" {
		l.add(kindData, text)
	}
}

// ending returns the length of the end of a tag that s begins with, including the white space that it removes.
func ending(s, end string, plus, newline bool) int {
	switch {
	case strings.HasPrefix(s, "-"+end):
		rest := s[1+len(end):]
		return len(s) - len(strings.TrimLeftFunc(rest, isSpace))
	case plus && strings.HasPrefix(s, "+"+end):
		return 1 + len(end)
	case newline && strings.HasPrefix(s, end+"\n"):
		return len(end) + 1
	case strings.HasPrefix(s, end):
		return len(end)
	}
	return 0
}

func (l *lexer) comment() {
	for rest, i := l.src[l.pos:], 0; i < len(rest); i++ {
		if n := ending(rest[i:], "#}", true, true); n > 0 {
			l.advance(i + n)
			return
		}
	}
	l.fail("a comment has no end")
}

var (
	rawBegin = lazyregexp.New(`^\s*raw\s*(?:-%\}\s*|%\})`)
	rawEnd   = lazyregexp.New(`\{%([-+]?)\s*endraw\s*(?:-%\}\s*|\+%\}|%\}\n?)`)
)

func (l *lexer) raw() {
	rest := l.src[l.pos:]
	at := rawEnd().FindStringSubmatchIndex(rest)
	if at == nil {
		l.fail("a raw block has no end")
	}
	l.data(rest[:at[0]], rest[at[2]:at[3]], false)
	l.advance(at[1])
}

// operators have the longest first.
var operators = strings.Fields("** // == != >= <= + - / * % ~ [ ] ( ) { } > < = . : | , ;")

var closing = map[string]byte{"{": '}', "(": ')', "[": ']'}

// maxTag is the number of tokens in a tag, which bounds the nesting of its expressions.
const maxTag = 5000

func (l *lexer) tag(end kind) {
	var open []byte
	first := len(l.tokens)
	for l.pos < len(l.src) {
		if len(l.tokens) > first+maxTag {
			l.fail("a tag has more than %d names, numbers, texts and operators", maxTag)
		}
		rest := l.src[l.pos:]
		if len(open) == 0 {
			if n := ending(rest, string(end), end == kindBlockEnd, end == kindBlockEnd); n > 0 {
				l.add(end, "")
				l.advance(n)
				return
			}
		}
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case isSpace(r):
			l.advance(size)
		case r >= '0' && r <= '9':
			l.number(rest)
		case r == '_' || unicode.IsLetter(r):
			l.name(rest)
		case r == '\'' || r == '"':
			l.str(rest)
		default:
			open = l.operator(rest, open)
		}
	}
}

func (l *lexer) operator(rest string, open []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		if end, ok := closing[op]; ok {
			open = append(open, end)
		} else if strings.Contains("])}", op) {
			if len(open) == 0 || open[len(open)-1] != op[0] {
				l.fail("unexpected '%s'", op)
			}
			open = open[:len(open)-1]
		}
		l.add(kind(op), "")
		l.advance(len(op))
		return open
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected character %q", r)
	return nil
}

func (l *lexer) name(rest string) {
	n := strings.IndexFunc(rest, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)
	})
	if n < 0 {
		n = len(rest)
	}
	l.add(kindName, rest[:n])
	l.advance(n)
}

func decimal(c byte) bool { return c >= '0' && c <= '9' }

func (l *lexer) number(rest string) {
	digits := func(from int) int {
		n := from
		for n < len(rest) && decimal(rest[n]) {
			n++
		}
		return n
	}
	n, k := digits(0), kindInteger // 0x1f and 1_0 are a number and a name, which the parser refuses
	if l.src[l.pos-1] != '.' {     // x.0.1 are two elements
		if end := digits(n + 1); n < len(rest) && rest[n] == '.' && end > n+1 {
			n, k = end, kindFloat
		}
		if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
			e := n + 1
			if e < len(rest) && (rest[e] == '+' || rest[e] == '-') {
				e++
			}
			if end := digits(e); end > e {
				n, k = end, kindFloat
			}
		}
	}
	if k == kindInteger && n > 1 && rest[0] == '0' {
		l.fail("a number that begins with 0 is not supported")
	}
	l.add(k, rest[:n])
	l.advance(n)
}

func (l *lexer) str(rest string) {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			l.add(kindString, l.unescape(rest[1:i]))
			l.advance(i + 1)
			return
		}
	}
	l.fail("unexpected character %q: a string has no end", rest[0])
}

// unescape leaves an unknown escape as it is, as Python does.
func (l *lexer) unescape(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, `\`)
		if !ok || rest == "" {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(before)
		c := rest[0]
		s = rest[1:]
		switch {
		case c == '\n':
		case c == '\'' || c == '"':
			b.WriteByte(c)
		case strings.IndexByte(`\abfnrtvxuU`, c) >= 0:
			r, _, tail, err := strconv.UnquoteChar(`\`+rest, 0)
			if err != nil {
				l.fail("a string has the escape \\%.9s, which is no character", rest)
			}
			b.WriteRune(r)
			s = tail
		case c == 'N' || decimal(c):
			l.fail(`the escape \%c is not supported: write the character`, c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
}
