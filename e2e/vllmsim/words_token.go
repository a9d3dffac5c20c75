package vllmsim

import (
	"strings"
	"unicode/utf8"
)

// Token is a piece of text. Numbers below [Vocabulary] are words; the others hold up to four bytes of text and their
// count.
type Token int64

// Vocabulary is the number of tokens that are words.
var Vocabulary = Token(2 * len(lexicon))

const pieceBase Token = 1 << 20 // the first that holds bytes

const pieceSize = 4

// Encode splits text into tokens. Decode gives it back.
func Encode(text string) []Token {
	tokens := make([]Token, 0, len(text)/3+1)
	for len(text) > 0 {
		n := next(text)
		tokens = appendPiece(tokens, text[:n])
		text = text[n:]
	}
	return tokens
}

// next is the length of a word with the space before it, a run of digits, or one other character.
func next(text string) int {
	i := 0
	if text[0] == ' ' && len(text) > 1 && letter(text[1]) {
		i = 1
	}
	if letter(text[i]) {
		for i < len(text) && letter(text[i]) {
			i++
		}
		return i
	}
	if digit(text[0]) {
		for i < len(text) && i < 3 && digit(text[i]) {
			i++
		}
		return i
	}
	_, n := utf8.DecodeRuneInString(text)
	return n
}

// letter knows ASCII only; other alphabets are cut by their bytes.
func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }

func appendPiece(tokens []Token, run string) []Token {
	if t, found := numbers[run]; found {
		return append(tokens, t)
	}
	for len(run) > 0 {
		n := min(pieceSize, len(run))
		for n < len(run) && n > 1 && !utf8.RuneStart(run[n]) {
			n--
		}
		tokens = append(tokens, packed(run[:n]))
		run = run[n:]
	}
	return tokens
}

func packed(piece string) Token {
	t := Token(len(piece))
	for i := 0; i < pieceSize; i++ {
		t <<= 8
		if i < len(piece) {
			t |= Token(piece[i])
		}
	}
	return pieceBase + t
}

// Piece is the text of one token; empty for a number that is none.
func Piece(t Token) string {
	if t >= 0 && t < Vocabulary {
		if word := lexicon[t/2]; t%2 == 0 {
			return word
		} else {
			return " " + word
		}
	}
	t -= pieceBase
	n := t >> (8 * pieceSize)
	if t < 0 || n < 1 || n > pieceSize {
		return ""
	}
	piece := make([]byte, n)
	for i := range piece {
		piece[i] = byte(t >> (8 * (pieceSize - 1 - i)))
	}
	return string(piece)
}

// Decode joins the texts of tokens.
func Decode(tokens []Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(Piece(t))
	}
	return b.String()
}

var numbers = func() map[string]Token {
	m := make(map[string]Token, 2*len(lexicon))
	for i, word := range lexicon {
		m[word], m[" "+word] = Token(2*i), Token(2*i+1)
	}
	return m
}()
